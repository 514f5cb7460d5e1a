#: title = "sparse matrices (cuSPARSE): products, conversions, conjugate gradients, eigenvalues"
#: wants = ["cupy", "scipy"]
import cupy as cp
import numpy as np
from compat import check, exact, near
from cupyx.scipy import sparse
from cupyx.scipy.sparse import linalg

rng = np.random.default_rng(4)
host = rng.standard_normal((400, 400)) * (rng.random((400, 400)) < 0.03)
dense = cp.asarray(host)
csr = sparse.csr_matrix(dense)
exact("parts", csr.indptr, csr.indices, csr.data, csr.toarray(), csr.tocsc().indices, csr.tocoo().row)
x = cp.asarray(rng.standard_normal(400))
near("vector", (csr @ x).get().tolist()[:20], 1e-9)
check("product", cp.allclose((csr @ csr.T).toarray(), dense @ dense.T))
check("with a dense one", cp.allclose(csr @ cp.ones((400, 5)), dense @ cp.ones((400, 5))))
exact("sums", (csr + csr).toarray(), csr.multiply(2).data)
spd = csr @ csr.T + sparse.identity(400) * 10
solution, code = linalg.cg(spd, x, rtol=1e-10)
check("conjugate gradients", code == 0 and cp.allclose(spd @ solution, x, atol=1e-6))
near("largest eigenvalues", sorted(linalg.eigsh(spd, k=3, return_eigenvectors=False).get().tolist()), 1e-6)
