#: title = "ResNet-50 (torchvision): training steps in f32 and in bf16 autocast, channels last; losses"
#: wants = ["torch", "torchvision"]
#: timeout = 150
#: memory = 14
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
import torchvision
from compat import exact, info, show

torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
for kind in (None, torch.bfloat16):
    torch.manual_seed(17)
    net = torchvision.models.resnet50(weights=None).cuda()
    if kind is not None:
        net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(1)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for step in range(10):
        images = torch.randn(32, 3, 224, 224, generator=generator).cuda(non_blocking=True)
        labels = torch.randint(0, 1000, (32,), generator=generator).cuda()
        if step == 5:
            start.record()
        with torch.autocast("cuda", dtype=kind or torch.bfloat16, enabled=kind is not None):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        show(f"{kind} step {step}", loss.item())
    end.record()
    torch.cuda.synchronize()
    info(f"{start.elapsed_time(end) / 5:.1f} ms a step")
    exact("parameters", net.conv1.weight, net.fc.weight, net.bn1.running_mean)
    net.eval()
    with torch.no_grad():
        exact("inference", net(torch.ones(1, 3, 224, 224, device="cuda")))
