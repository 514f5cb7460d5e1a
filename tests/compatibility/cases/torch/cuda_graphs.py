#: title = "CUDA graphs: capture and replay, random numbers, shared pools, side streams, pinned memory read at replay"
#: wants = ["torch"]
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
from compat import check, exact

torch.manual_seed(13)
net = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(6))).cuda()
x = torch.randn(64, 256, device="cuda")
warm = torch.cuda.Stream()
warm.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(warm), torch.no_grad():
    for _ in range(3):
        net(x)
torch.cuda.current_stream().wait_stream(warm)

graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(graph):
    y = net(x).relu() * 2
for round in range(3):
    x.copy_(torch.full((64, 256), float(round + 1)))
    graph.replay()
    with torch.no_grad():
        check(f"replay {round} equals eager", torch.equal(y, net(x).relu() * 2))
    exact(f"replay {round}", y)

# Random numbers advance from replay to replay.
noisy = torch.cuda.CUDAGraph()
torch.cuda.manual_seed(5)
with torch.cuda.graph(noisy, pool=graph.pool()):
    noise = torch.rand(10000, device="cuda")
    dropped = torch.nn.functional.dropout(noise, 0.5)
noisy.replay()
first = noise.clone()
exact("random", noise, dropped)
noisy.replay()
check("the second replay has other numbers", not torch.equal(first, noise))
exact("random again", noise, dropped)

# A fork to another stream and back, and a copy that reads pinned memory when it is replayed.
pinned = torch.zeros(100_000).pin_memory()
target = torch.zeros(100_000, device="cuda")
forked = torch.cuda.CUDAGraph()
side = torch.cuda.Stream()
with torch.cuda.graph(forked):
    target.copy_(pinned, non_blocking=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        left = target * 3
    right = target + 1
    torch.cuda.current_stream().wait_stream(side)
    both = left + right
for round in range(3):
    pinned.fill_(round + 0.5)
    forked.replay()
    torch.cuda.synchronize()
    check(f"replay {round} reads the bytes of now", torch.equal(both.cpu(), torch.full((100_000,), (round + 0.5) * 4 + 1)))

# A whole training step.
model = torch.nn.Linear(128, 10).cuda()
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
data, label = torch.randn(32, 128, device="cuda"), torch.arange(32, device="cuda") % 10


def step():
    optimizer.zero_grad(set_to_none=False)
    loss = torch.nn.functional.cross_entropy(model(data), label)
    loss.backward()
    optimizer.step()
    return loss


with torch.cuda.stream(warm):
    warm.wait_stream(torch.cuda.current_stream())
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(warm)
training = torch.cuda.CUDAGraph()
with torch.cuda.graph(training):
    loss = step()
for _ in range(10):
    training.replay()
exact("training step", loss, model.weight)
try:
    bad = torch.cuda.CUDAGraph()
    with torch.cuda.graph(bad):
        torch.zeros(1, device="cuda").item()
    check("waiting while capturing is an error", False)
except RuntimeError:
    check("waiting while capturing is an error", True)
del bad
check("work goes on", torch.ones(5, device="cuda").sum().item() == 5)
