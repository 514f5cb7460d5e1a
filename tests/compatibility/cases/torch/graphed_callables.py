#: title = "make_graphed_callables: forward and backward as graphs in a training loop"
#: wants = ["torch"]
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
from compat import exact, show

torch.manual_seed(14)
net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU()).cuda()
head = torch.nn.Linear(128, 10).cuda()
x, label = torch.randn(32, 64, device="cuda"), torch.arange(32, device="cuda") % 10
net = torch.cuda.make_graphed_callables(net, (torch.randn(32, 64, device="cuda", requires_grad=False),))
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
for step in range(15):
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(head(net(x + step * 0.01)), label)
    loss.backward()
    optimizer.step()
    show(f"step {step}", loss.item())
exact("parameters", *net.parameters())
