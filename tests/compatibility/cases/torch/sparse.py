#: title = "sparse matrices (cuSPARSE): COO and CSR products, sums, conversions, gradients"
#: wants = ["torch"]
import torch
from compat import check, exact, near

torch.manual_seed(7)
dense = torch.randn(500, 400)
dense[torch.rand(500, 400) > 0.05] = 0
other = torch.randn(400, 64)
for kind in (torch.float32, torch.float64):
    a, b = dense.to(kind).cuda(), other.to(kind).cuda()
    coo, csr = a.to_sparse_coo(), a.to_sparse_csr()
    reference = a @ b
    for name, sparse in (("coo", coo), ("csr", csr)):
        out = sparse @ b
        check(f"{kind} {name} product", (out - reference).abs().max().item() < 1e-4)
        near(f"{kind} {name} sum", out.sum().item(), 1e-5)
        near(f"{kind} {name} vector", (sparse @ b[:, 0]).tolist()[:20], 1e-5)
    exact(f"{kind} coo parts", coo.indices(), coo.values(), coo.coalesce().to_dense())
    exact(f"{kind} csr parts", csr.crow_indices(), csr.col_indices(), csr.values(), csr.to_dense())
    exact(f"{kind} csc", a.to_sparse_csc().row_indices())
    exact(f"{kind} sum", (coo + coo).coalesce().values(), torch.sparse.sum(coo, dim=0).to_dense())
    product = torch.sparse.mm(csr, csr.to_dense().T.to_sparse_csr())
    near(f"{kind} sparse by sparse", product.to_dense().sum().item(), 1e-5)
    sampled = torch.sparse.sampled_addmm(csr, torch.ones(500, 8, dtype=kind).cuda(), torch.ones(8, 400, dtype=kind).cuda())
    near(f"{kind} sampled", sampled.values().tolist()[:10], 1e-5)
    exact(f"{kind} softmax", torch.sparse.softmax(coo, dim=1).to_dense())
weights = dense.cuda().to_sparse_coo().requires_grad_()
torch.sparse.mm(weights, other.cuda()).square().sum().backward()
near("gradient", weights.grad.coalesce().values().sum().item(), 1e-4)
