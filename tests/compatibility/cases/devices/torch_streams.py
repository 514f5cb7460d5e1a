#: title = "copies between devices with streams, events and pinned memory; a pipeline of micro-batches"
#: wants = ["torch"]
#: devices = 2
#: timeout = 120
#: memory = 4
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
from compat import check, exact, show

count = torch.cuda.device_count()
last = count - 1
x = torch.arange(1 << 24, device="cuda:0", dtype=torch.float32)
check("there and back", torch.equal(x, x.to(f"cuda:{last}").to("cuda:0")))
check("strided", torch.equal(x.view(4096, 4096).t().to(f"cuda:{last}").cpu(), x.view(4096, 4096).t().cpu()))
pinned = torch.empty(1 << 22, pin_memory=True)
pinned.copy_(x[: 1 << 22], non_blocking=True)
torch.cuda.synchronize(0)
exact("through pinned memory", pinned.to(f"cuda:{last}", non_blocking=True))

# Each device adds to a value and hands it on: the order is that of the events alone.
streams = [torch.cuda.Stream(device=i) for i in range(count)]
values = [torch.zeros(1 << 18, device=f"cuda:{i}") for i in range(count)]
for i in range(count):
    torch.cuda.synchronize(i)
event = None
for round in range(60):
    i, after = round % count, (round + 1) % count
    with torch.cuda.stream(streams[i]):
        if event is not None:
            streams[i].wait_event(event)
        values[i].mul_(1.01).add_(round)
        values[after].copy_(values[i], non_blocking=True)
        event = streams[i].record_event()
event.synchronize()
for i in range(count):
    torch.cuda.synchronize(i)
exact("handed on", *values)

# A model in stages, micro-batches in flight on all of them.
torch.manual_seed(11)
stages = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()).to(f"cuda:{i}") for i in range(count)]
optimizer = torch.optim.SGD([p for stage in stages for p in stage.parameters()], lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    losses = []
    for part in torch.randn(8, 32, 256).unbind():
        for i, stage in enumerate(stages):
            part = stage(part.to(f"cuda:{i}", non_blocking=True))
        losses.append(part.square().mean())
    loss = torch.stack(losses).sum()
    loss.backward()
    optimizer.step()
    show(f"step {step}", loss.item())
