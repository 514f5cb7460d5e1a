#: title = "elementwise and fused kernels, reductions, sorting, indexing, products, random numbers"
#: wants = ["cupy"]
#: timeout = 120
import cupy as cp
import numpy as np
from compat import check, exact, near, show

rng = np.random.default_rng(1)
host = rng.standard_normal((300, 401)).astype(np.float32)
x = cp.asarray(host)
exact("elementwise", x * 2 + 1, cp.sin(x), cp.where(x > 0, x, -x), x.astype(cp.float16), cp.exp(x.astype(cp.float64)))
exact("reductions", x.sum(), x.mean(axis=0), x.max(axis=1), x.argmin(axis=0), cp.var(x, axis=1), cp.percentile(x, 30))
exact("sorting", cp.sort(x, axis=1), cp.argsort(x[0]), cp.unique(cp.round(x)), cp.cumsum(x, axis=0))
exact("indexing", x[x > 1.5], x[::3, ::-2], cp.take(x, cp.arange(10), axis=1), cp.nonzero(x > 2)[0])
check("as on the host", np.allclose(cp.asnumpy(cp.tanh(x) @ cp.tanh(x).T), np.tanh(host) @ np.tanh(host).T, atol=1e-3))
exact("products", x @ x.T, cp.einsum("ij,kj->ik", x[:20], x[:30]), cp.tensordot(x, x, axes=([1], [1])))
for kind in (cp.float16, cp.float32, cp.float64, cp.complex64, cp.complex128):
    a = x[:64, :96].astype(kind)
    exact(f"product {np.dtype(kind).name}", a @ a.T, a[0] @ a[1])


@cp.fuse()
def fused(a, b):
    return cp.sqrt(a * a + b * b) + 1


exact("fused", fused(x, x * 2))
power = cp.ElementwiseKernel("float32 a, int32 n", "float32 out", "out = 1; for (int k = 0; k < n; k++) out *= a;", "power")
exact("elementwise kernel", power(x, 5))
norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm2")
near("reduction kernel", norm(x, axis=1).get().tolist()[:8], 1e-6)
cp.random.seed(3)
exact("random", cp.random.rand(1000), cp.random.standard_normal(1000), cp.random.randint(0, 100, 1000))
generator = cp.random.Generator(cp.random.XORWOW(5))
exact("generator", generator.random(1000), generator.integers(0, 1000, 100))
show("bytes", x.nbytes)
