#: title = "RawKernel and RawModule (NVRTC): templates, constant memory, dynamic shared memory, textures; jit.rawkernel"
#: wants = ["cupy"]
import cupy as cp
import numpy as np
from compat import check, exact, show
from cupyx import jit

x = cp.arange(10_000, dtype=cp.float32)
kernel = cp.RawKernel('extern "C" __global__ void f(const float *x, float *y, int n, double a) { int i = blockDim.x * blockIdx.x + threadIdx.x; if (i < n) y[i] = a * x[i] * x[i]; }', "f")
y = cp.zeros_like(x)
kernel((40,), (256,), (x, y, np.int32(10_000), np.float64(0.5)))
exact("raw kernel", y)
show("attributes", kernel.max_threads_per_block, kernel.shared_size_bytes, kernel.local_size_bytes)
SOURCE = """
__constant__ float factors[4];
template <typename T> __global__ void scale(T *x, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) x[i] = x[i] * T(factors[i % 4]);
}
extern "C" __global__ void reverse(const float *in, float *out) {
    extern __shared__ float block[];
    block[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = block[blockDim.x - 1 - threadIdx.x];
}
"""
module = cp.RawModule(code=SOURCE, options=("-std=c++17",), name_expressions=["scale<float>", "scale<double>"])
pointer = module.get_global("factors")
cp.ndarray(4, cp.float32, pointer)[...] = cp.asarray([1, 2, 3, 4], dtype=cp.float32)
for kind in (cp.float32, cp.float64):
    data = cp.arange(1000).astype(kind)
    module.get_function(f"scale<{'float' if kind == cp.float32 else 'double'}>")((4,), (256,), (data, np.int32(1000)))
    exact("template", data)
out = cp.zeros(1024, dtype=cp.float32)
reverse = module.get_function("reverse")
reverse((4,), (256,), (x, out), shared_mem=1024)
exact("shared memory", out)
reverse.max_dynamic_shared_size_bytes = 96 * 1024
check("more shared memory", reverse.max_dynamic_shared_size_bytes == 96 * 1024)
try:
    cp.RawKernel("this is not C++", "f")((1,), (1,), ())
    check("an error of the compiler is told", False)
except Exception as error:
    check("an error of the compiler is told", "error" in str(error).lower())


@jit.rawkernel()
def halve(x, y, n):
    i = jit.grid(1)
    if i < n:
        y[i] = x[i] / 2


halve[40, 256](x, y, 10_000)
exact("jit", y)
