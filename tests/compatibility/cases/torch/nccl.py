#: title = "torch.distributed with NCCL, one process on one GPU; DistributedDataParallel"
#: wants = ["torch"]
#: timeout = 90
#: env = { MASTER_ADDR = "127.0.0.1", CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import socket

import torch
import torch.distributed as dist
from compat import exact, show

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
torch.cuda.set_device(0)
store = dist.TCPStore("127.0.0.1", port, 1, is_master=True)
dist.init_process_group("nccl", store=store, rank=0, world_size=1)
x = torch.arange(1000.0, device="cuda")
dist.all_reduce(x)
parts = [torch.empty(1000, device="cuda")]
dist.all_gather(parts, x * 2)
exact("collectives", x, parts[0])
dist.barrier()
torch.manual_seed(19)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 10).cuda(), device_ids=[0])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    loss = net(torch.randn(16, 100, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    show(f"step {step}", loss.item())
dist.destroy_process_group()
