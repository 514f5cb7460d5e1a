#: title = "scaled dot-product attention: flash, memory-efficient, cuDNN and plain, forward and backward"
#: wants = ["torch"]
#: timeout = 90
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
from compat import check, exact
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.manual_seed(5)
results = {}
q, k, v = (torch.randn(2, 8, 384, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
    for causal in (False, True):
        for value in (q, k, v):
            value.grad = None
        # cuDNN's backward pass adds in no fixed order; the others have one when it is asked for.
        fixed = backend != SDPBackend.CUDNN_ATTENTION
        torch.use_deterministic_algorithms(fixed)
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            out.float().square().sum().backward()
        if fixed:
            exact(f"{backend.name} causal={causal} gradients", q.grad, k.grad, v.grad)
        else:
            check(f"{backend.name} causal={causal} gradients are numbers", all(t.grad.isfinite().all() for t in (q, k, v)))
        exact(f"{backend.name} causal={causal}", out)
        results.setdefault(causal, []).append(out.float())
for causal, outs in results.items():
    check(f"causal={causal}: all agree", all((out - outs[0]).abs().max().item() < 0.03 for out in outs))
