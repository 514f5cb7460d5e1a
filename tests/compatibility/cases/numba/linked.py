#: title = "cuda.jit with linked CUDA C++, cooperative groups over the whole grid, inspection"
#: wants = ["numba", "numba_cuda"]
#: timeout = 120
import os
import tempfile

import numba_start
import numpy as np
from compat import check, exact

cuda = numba_start.start()
SOURCE = 'extern "C" __device__ int mix(int *out, int a, int b) { *out = a * 1000 + b; return 0; }'
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "mix.cu")
    with open(path, "w") as file:
        file.write(SOURCE)
    mix = cuda.declare_device("mix", "int32(int32, int32)")

    @cuda.jit(link=[path])
    def use(out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = mix(i, 7)

    out = np.zeros(100, dtype=np.int32)
    use[1, 128](out)
exact("linked", out)


@cuda.jit("void(int32[:, ::1])")
def rows(m):
    column = cuda.grid(1)
    grid = cuda.cg.this_grid()
    for row in range(1, m.shape[0]):
        opposite = m.shape[1] - column - 1
        m[row, column] = m[row - 1, opposite] + 1
        grid.sync()


m = np.zeros((64, 1024), dtype=np.int32)
rows[8, 128](m)
check("all blocks wait for each other", (m == np.arange(64)[:, None]).all())
