#: title = "kernels, shared memory, atomics, local and constant memory, math, warps, reduction, vectorize"
#: wants = ["numba", "numba_cuda"]
#: timeout = 120
import math

import numba_start
import numpy as np
from compat import check, exact, show

cuda = numba_start.start()
import numba  # noqa: E402

show("device", cuda.get_current_device().name.decode() if isinstance(cuda.get_current_device().name, bytes) else cuda.get_current_device().name)
TABLE = np.arange(8, dtype=np.float32) ** 2


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i] + math.sin(x[i])


@cuda.jit
def product(a, b, c):
    left = cuda.shared.array((16, 16), numba.float32)
    right = cuda.shared.array((16, 16), numba.float32)
    row, column = cuda.grid(2)
    ty, tx = cuda.threadIdx.x, cuda.threadIdx.y
    total = np.float32(0)
    for step in range(a.shape[1] // 16):
        left[ty, tx] = a[row, step * 16 + tx]
        right[ty, tx] = b[step * 16 + ty, column]
        cuda.syncthreads()
        for k in range(16):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    c[row, column] = total


@cuda.jit
def histogram(values, bins):
    block = cuda.shared.array(64, numba.int32)
    if cuda.threadIdx.x < 64:
        block[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(block, values[i], 1)
    cuda.syncthreads()
    if cuda.threadIdx.x < 64:
        cuda.atomic.add(bins, cuda.threadIdx.x, block[cuda.threadIdx.x])


@cuda.jit
def various(out):
    table = cuda.const.array_like(TABLE)
    local = cuda.local.array(4, numba.float32)
    i = cuda.grid(1)
    for k in range(4):
        local[k] = table[(i + k) % 8]
    value = local[0] + local[1] * local[2] - local[3]
    value += cuda.shfl_down_sync(0xFFFFFFFF, value, 1)
    out[i] = value + cuda.popc(i) + (1 if cuda.any_sync(0xFFFFFFFF, i % 7 == 0) else 0)


x = np.arange(10_000, dtype=np.float32) / 100
y = np.ones_like(x)
saxpy[40, 256](2.0, x, y)
exact("saxpy", y)
rng = np.random.default_rng(1)
a, b = rng.random((64, 96), dtype=np.float32), rng.random((96, 48), dtype=np.float32)
c = np.zeros((64, 48), dtype=np.float32)
product[(4, 3), (16, 16)](a, b, c)
check("product", np.allclose(c, a @ b, rtol=1e-4))
exact("product", c)
values, bins = rng.integers(0, 64, 100_000).astype(np.int32), np.zeros(64, dtype=np.int32)
histogram[400, 256](values, bins)
check("histogram", np.array_equal(bins, np.bincount(values, minlength=64)))
out = np.zeros(256, dtype=np.float32)
various[2, 128](out)
exact("various", out)


@cuda.reduce
def add(a, b):
    return a + b


check("reduction", add(np.arange(1000.0)) == 499500)


@numba.vectorize(["float32(float32, float32)"], target="cuda")
def blend(a, b):
    return a * np.float32(0.25) + b


exact("vectorize", np.asarray(blend(x, y)))
