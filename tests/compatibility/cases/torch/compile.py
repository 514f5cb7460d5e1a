#: title = "torch.compile (Inductor, Triton): fused kernels, training, dynamic shapes"
#: wants = ["torch", "triton"]
#: timeout = 240
#: variants = { default = { COMPAT_MODE = "default" }, reduce-overhead = { COMPAT_MODE = "reduce-overhead" } }
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8", TORCHINDUCTOR_COMPILE_THREADS = "4", TORCHINDUCTOR_FX_GRAPH_CACHE = "0" }
import os

import torch
from compat import check, near, show

mode = os.environ["COMPAT_MODE"]
torch.manual_seed(15)


@torch.compile(mode=mode)
def fused(x, y):
    return (x * y + x.sin()).softmax(-1) @ y.T


x, y = torch.randn(128, 256, device="cuda"), torch.randn(128, 256, device="cuda")
for _ in range(4):
    out = fused(x, y).clone()
check("the compiled function gives what it should", torch.allclose(out, (x * y + x.sin()).softmax(-1) @ y.T, atol=1e-4))
near("sum", out.double().sum().item(), 1e-4)

net = torch.nn.Sequential(
    torch.nn.Linear(64, 256), torch.nn.LayerNorm(256), torch.nn.GELU(), torch.nn.Dropout(0.0), torch.nn.Linear(256, 10)
).cuda()
compiled = torch.compile(net, mode=mode)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
data, label = torch.randn(64, 64, device="cuda"), torch.arange(64, device="cuda") % 10
losses = []
for step in range(12):
    torch.compiler.cudagraph_mark_step_begin()
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(compiled(data), label)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
# Inductor times several variants of a reduction and takes the fastest, so the last bits are not
# always the same.
near("losses", losses, 1e-4)
check("it learns", losses[-1] < losses[0])


@torch.compile(dynamic=True, mode=mode)
def scaled(x):
    return (x - x.mean()) / x.std()


for size in (10, 100, 1000):
    value = scaled(torch.arange(float(size), device="cuda"))
    show(f"size {size}", list(value.shape), round(value[-1].item(), 3))
if mode == "reduce-overhead":
    from torch._inductor.cudagraph_trees import get_manager

    manager = get_manager(0, create_if_none_exists=False)
    check("graphs are in use", manager is not None)
