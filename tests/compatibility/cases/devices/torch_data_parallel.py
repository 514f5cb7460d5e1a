#: title = "torch.nn.DataParallel and torch.cuda.comm: a batch on all devices, gradients on the first"
#: wants = ["torch"]
#: devices = 2
#: timeout = 120
#: memory = 4
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
from compat import exact, show
from torch import nn
from torch.cuda import comm

count = torch.cuda.device_count()
devices = list(range(count))
x = torch.arange(4096.0, device="cuda").reshape(64, 64)
copies = comm.broadcast(x, devices)
exact("broadcast", *copies)
parts = comm.scatter(x, devices)
exact("scattered", *parts)
exact("gathered", comm.gather(parts, destination=count - 1))
exact("added", comm.reduce_add([part * (i + 1) for i, part in enumerate(copies)], destination=0))
coalesced = comm.broadcast_coalesced([x, x + 1, (x * 2).long()], devices)
exact("coalesced", *coalesced[-1])

torch.manual_seed(3)
torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10)
)
parallel = nn.DataParallel(net.cuda(), device_ids=devices)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05, momentum=0.9)
for step in range(20):
    images, labels = torch.randn(32, 3, 32, 32).cuda(), torch.randint(0, 10, (32,)).cuda()
    loss = nn.functional.cross_entropy(parallel(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        show(f"step {step}", loss.item())
exact("parameters", *parallel.parameters())
