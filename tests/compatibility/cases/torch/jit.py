#: title = "kernels made at run time: jiterator (NVRTC), TorchScript fusion, a compiled kernel from source"
#: wants = ["torch"]
#: timeout = 90
import torch
from compat import check, exact

torch.manual_seed(20)
x = torch.randn(10000, device="cuda")
squash = torch.cuda.jiterator._create_jit_fn("template <typename T> T squash(T x, T a) { return x / (a + (x < 0 ? -x : x)); }", a=1.0)
exact("jiterator", squash(x), squash(x, a=2.5))
exact("special functions", torch.special.bessel_j0(x), torch.special.zeta(x.abs() + 2, x.abs() + 1), torch.special.i1e(x), torch.lgamma(x))


@torch.jit.script
def scripted(a, b):
    return ((a * b).sigmoid() + a.tanh()).relu()


for _ in range(4):
    out = scripted(x, x.flip(0))
check("script", torch.allclose(out, ((x * x.flip(0)).sigmoid() + x.tanh()).relu(), atol=1e-5))
if hasattr(torch.cuda, "_compile_kernel"):
    source = 'extern "C" __global__ void twice(const float *in, float *out, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = 2 * in[i]; }'
    kernel = torch.cuda._compile_kernel(source, "twice")
    out = torch.zeros_like(x)
    kernel(grid=(40, 1, 1), block=(256, 1, 1), args=[x, out, 10000])
    check("compiled kernel", torch.equal(out, 2 * x))
