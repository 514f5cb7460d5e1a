#: title = "linear algebra (cuSOLVER): svd, qr, cholesky, eigh, solve, lstsq, inverse"
#: wants = ["cupy"]
import cupy as cp
import numpy as np
from compat import check, near

rng = np.random.default_rng(3)
for kind in (np.float32, np.float64, np.complex128):
    a = cp.asarray(rng.standard_normal((60, 60)).astype(kind))
    spd = a @ a.conj().T + 60 * cp.eye(60)
    spd = spd.astype(kind)
    tolerance = 1e-2 if kind == np.float32 else 1e-8
    u, s, vh = cp.linalg.svd(a)
    check(f"{kind.__name__} svd", cp.allclose((u * s) @ vh, a, atol=tolerance))
    near(f"{kind.__name__} singular values", s.get().tolist(), 1e-3)
    q, r = cp.linalg.qr(a)
    check(f"{kind.__name__} qr", cp.allclose(q @ r, a, atol=tolerance))
    low = cp.linalg.cholesky(spd)
    check(f"{kind.__name__} cholesky", cp.allclose(low @ low.conj().T, spd, atol=tolerance))
    values, vectors = cp.linalg.eigh(spd)
    check(f"{kind.__name__} eigh", cp.allclose((vectors * values) @ vectors.conj().T, spd, atol=tolerance * 10))
    b = cp.arange(60).astype(kind)
    check(f"{kind.__name__} solve", cp.allclose(spd @ cp.linalg.solve(spd, b), b, atol=tolerance))
    check(f"{kind.__name__} inverse", cp.allclose(cp.linalg.inv(spd) @ spd, cp.eye(60), atol=tolerance))
    near(f"{kind.__name__} determinant", [float(v.real) for v in cp.linalg.slogdet(spd)], 1e-3)
tall = cp.asarray(rng.standard_normal((100, 10)))
near("least squares", cp.linalg.lstsq(tall, cp.ones(100), rcond=None)[0].get().tolist(), 1e-8)
near("pseudo-inverse", cp.linalg.pinv(tall)[0, :5].get().tolist(), 1e-8)
