#: title = "what it finds: the device, by the runtime and by NVML"
#: software = true
import re

import compat
import program

said = program.run("usr/bin/starpu_machine_display", env={"STARPU_NCPU": "1", "STARPU_NOPENCL": "0", "STARPU_SILENT": "1"})
compat.check("it has a worker for CUDA", re.search(r"^\s*CUDA 0\.0 ", said, re.MULTILINE))
