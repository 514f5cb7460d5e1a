#: title = "linear algebra (cuSOLVER, MAGMA): svd, qr, cholesky, eigh, eig, lu, solve, lstsq, inverse, batched"
#: wants = ["torch"]
#: timeout = 120
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
from compat import check, exact, near

torch.manual_seed(8)


def small(what, difference, tolerance):
    value = difference.abs().max().item()
    check(what, value < tolerance)


for kind, tolerance in ((torch.float32, 2e-3), (torch.float64, 1e-9), (torch.complex64, 2e-3), (torch.complex128, 1e-9)):
    name = str(kind)[6:]
    for shape in ((48, 48), (5, 24, 24)):
        a = torch.randn(*shape, dtype=kind).cuda()
        spd = a @ a.mH + 10 * torch.eye(shape[-1], dtype=kind).cuda()
        b = torch.randn(*shape[:-1], 3, dtype=kind).cuda()
        label = f"{name} {'x'.join(map(str, shape))}"
        u, s, vh = torch.linalg.svd(a)
        small(f"{label} svd", u @ torch.diag_embed(s).to(kind) @ vh - a, tolerance)
        near(f"{label} singular values", s.flatten().tolist()[:24], 1e-4)
        q, r = torch.linalg.qr(a)
        small(f"{label} qr", q @ r - a, tolerance)
        low = torch.linalg.cholesky(spd)
        small(f"{label} cholesky", low @ low.mH - spd, tolerance * 10)
        exact(f"{label} cholesky", low)
        values, vectors = torch.linalg.eigh(spd)
        small(f"{label} eigh", vectors @ torch.diag_embed(values).to(kind) @ vectors.mH - spd, tolerance * 100)
        near(f"{label} eigenvalues", values.flatten().tolist()[:24], 1e-4)
        small(f"{label} solve", a @ torch.linalg.solve(a, b) - b, tolerance * 10)
        small(f"{label} inverse", torch.linalg.inv(spd) @ spd - torch.eye(shape[-1], dtype=kind).cuda(), tolerance)
        p, lo, up = torch.linalg.lu(a)
        small(f"{label} lu", p @ lo @ up - a, tolerance)
        small(f"{label} cholesky solve", spd @ torch.cholesky_solve(b, low) - b, tolerance * 10)
        small(f"{label} triangular", low @ torch.linalg.solve_triangular(low, b, upper=False) - b, tolerance)
        near(f"{label} log determinant", torch.linalg.slogdet(spd).logabsdet.flatten().tolist(), 1e-4)
        exact(f"{label} rank", torch.linalg.matrix_rank(a))
tall, right = torch.randn(200, 30).double().cuda(), torch.randn(200, 4).double().cuda()
solution = torch.linalg.lstsq(tall, right).solution
small("least squares", tall.T @ (tall @ solution - right), 1e-9)
near("least squares", solution.flatten().tolist()[:10], 1e-8)
small("pseudo-inverse", torch.linalg.pinv(tall) @ tall - torch.eye(30).double().cuda(), 1e-9)
square = torch.randn(40, 40).double().cuda()
values = torch.linalg.eigvals(square)
near("general eigenvalues", sorted(values.abs().tolist()), 1e-8)
small("matrix exponential", torch.linalg.matrix_exp(square / 10) @ torch.linalg.matrix_exp(-square / 10) - torch.eye(40).double().cuda(), 1e-9)
big = torch.randn(700, 500).cuda()
u, s, vh = torch.linalg.svd(big, full_matrices=False)
small("large svd", u * s @ vh - big, 1e-2)
for driver in ("gesvd", "gesvdj", "gesvda"):
    near(f"singular values by {driver}", torch.linalg.svdvals(big[:100, :60], driver=driver).tolist(), 1e-3)
