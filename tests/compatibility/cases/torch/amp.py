#: title = "automatic mixed precision: float16 with a gradient scaler that meets infinities, bfloat16"
#: wants = ["torch"]
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
from compat import exact, show

torch.use_deterministic_algorithms(True)
for kind in (torch.float16, torch.bfloat16):
    torch.manual_seed(11)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.AvgPool2d(6),
        torch.nn.Flatten(), torch.nn.Linear(32 * 25, 100), torch.nn.GELU(), torch.nn.Linear(100, 10),
    ).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**24, growth_interval=5, enabled=kind == torch.float16)
    images, labels = torch.randn(32, 3, 32, 32).cuda(), torch.arange(32).cuda() % 10
    for step in range(20):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=kind):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=False)
        scaler.step(optimizer)
        scaler.update()
        show(f"{str(kind)[6:]} step {step}", loss.item(), norm.item(), scaler.get_scale())
    exact("parameters", *net.parameters())
