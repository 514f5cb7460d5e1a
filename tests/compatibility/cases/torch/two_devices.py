#: title = "two devices of one server: copies, a model cut in two, threads per device, peer access (says so where there is one)"
#: wants = ["torch"]
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import threading

import torch
from compat import check, exact, show

if torch.cuda.device_count() < 2:
    print("one device")
    raise SystemExit(0)

first, second = torch.device("cuda:0"), torch.device("cuda:1")
show("peer access", int(torch.cuda.can_device_access_peer(0, 1)), int(torch.cuda.can_device_access_peer(1, 0)))
x = torch.arange(1 << 22, device=first, dtype=torch.float32)
y = x.to(second, non_blocking=True)
z = (y * 2).to(first)
exact("there and back", z[:1000], y[-1000:].cpu())
check("all of it", torch.equal(z, x * 2))

torch.manual_seed(7)
one = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU()).to(first)
two = torch.nn.Linear(1024, 10).to(second)
optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], lr=0.05)
for step in range(6):
    batch = torch.randn(64, 512)
    loss = two(one(batch.to(first)).to(second)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    show(f"step {step}", loss.item())

results = {}


def work(device):
    torch.cuda.set_device(device)
    a = torch.full((1024, 1024), 0.5, device=device)
    for _ in range(50):
        a = (a @ a) / a.norm()
    results[device.index] = a.sum().item()


threads = [threading.Thread(target=work, args=(device,)) for device in (first, second)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check("both devices give the same", results[0] == results[1])
show("sum", results[0])
exact("devices", torch.tensor([torch.cuda.memory_allocated(d) > 0 for d in (0, 1)]))
