#: title = "the caching allocator"
#: wants = ["torch"]
#: memory = 8
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
#: [variants.plain]
#: [variants.expandable]
#: PYTORCH_CUDA_ALLOC_CONF = "expandable_segments:True"
#: [variants.async]
#: PYTORCH_CUDA_ALLOC_CONF = "backend:cudaMallocAsync"
#: [variants.uncached]
#: PYTORCH_NO_CUDA_MEMORY_CACHING = "1"
import random

import torch
from compat import check, exact, show

torch.use_deterministic_algorithms(True)
show("backend", torch.cuda.get_allocator_backend())
random.seed(16)
held = {}
for step in range(600):
    size = random.choice([7, 1000, 100_000, 3_000_000, 20_000_000])
    held[step % 37] = torch.full((size,), float(step), device="cuda")
    if step % 5 == 0:
        held.pop(random.randrange(37), None)
exact("contents", torch.stack([value.mean() for _, value in sorted(held.items())]))
held.clear()
torch.cuda.empty_cache()

torch.manual_seed(16)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3), torch.nn.Flatten(), torch.nn.LazyLinear(10)).cuda()
optimizer = None
for step in range(8):
    batch = 16 + 8 * (step % 3)
    loss = net(torch.randn(batch, 3, 32, 32).cuda()).logsumexp(1).mean()
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.01)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    show(f"step {step}", loss.item())
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    shared = torch.ones(5_000_000, device="cuda") * 2
torch.cuda.current_stream().wait_stream(side)
shared.record_stream(torch.cuda.current_stream())
show("sum", shared.sum().item())
check("memory is accounted for", torch.cuda.memory_allocated() >= 0)
