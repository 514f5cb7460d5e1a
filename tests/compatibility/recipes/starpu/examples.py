#: title = "its examples with CUDA kernels, on the device alone"
#: software = true
#: variants.vector_scal = { EXPECTS = "Computation is correct" }
#: variants.variable = { EXPECTS = "result is correct" }
#: variants.block = { EXPECTS = "TEST PASSED" }
#: variants.incrementer = { EXPECTS = "array -> 5.000000, 0.000000, 5.000000, 0.000000" }
#: variants.spmv = { EXPECTS = "15.00\t105.00" }
"""StarPU without workers on processors: each task runs on the device, or the example ends with 77."""

import os

import compat
import program

EXPECTS = os.environ["EXPECTS"]
NAME = os.environ["COMPAT_VARIANT"]

said = program.run(
    f"usr/lib/x86_64-linux-gnu/starpu/examples/{NAME}",
    env={"STARPU_NCPU": "0", "STARPU_NOPENCL": "0", "STARPU_SCHED": "eager", "STARPU_SILENT": "1"},
)
compat.check(f"it prints {EXPECTS!r}", EXPECTS in said)
