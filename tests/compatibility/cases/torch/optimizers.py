#: title = "optimizers: for each parameter, foreach, fused, capturable"
#: wants = ["torch"]
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
from compat import exact

torch.use_deterministic_algorithms(True)
VARIANTS = [
    (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "nesterov": True}), (torch.optim.SGD, {"lr": 0.01, "foreach": True}),
    (torch.optim.SGD, {"lr": 0.01, "fused": True}), (torch.optim.Adam, {"fused": True}), (torch.optim.AdamW, {"foreach": True}),
    (torch.optim.AdamW, {"fused": True}), (torch.optim.Adam, {"capturable": True}), (torch.optim.RMSprop, {}), (torch.optim.Adagrad, {}),
    (torch.optim.LBFGS, {"max_iter": 4}),
]
for kind, options in VARIANTS:
    torch.manual_seed(12)
    net = torch.nn.Sequential(*(torch.nn.Linear(50, 50) for _ in range(20))).cuda()
    optimizer = kind(net.parameters(), **options)
    x = torch.randn(16, 50, device="cuda")

    def closure():
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss

    for _ in range(4):
        optimizer.step(closure)
    exact(f"{kind.__name__} {options}", net[0].weight, net[19].bias)
