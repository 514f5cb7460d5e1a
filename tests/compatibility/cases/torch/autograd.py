#: title = "autograd: its own thread, second derivatives, hooks, custom functions, checkpoints, several threads, streams"
#: wants = ["torch"]
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import threading

import torch
from compat import check, exact, show
from torch.utils.checkpoint import checkpoint

torch.manual_seed(9)
torch.use_deterministic_algorithms(True)
here, seen = threading.get_ident(), []


class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context, gradient):
        seen.append(threading.get_ident())
        return gradient * 2 * context.saved_tensors[0]


net = torch.nn.Sequential(torch.nn.Linear(10, 256), torch.nn.GELU(), torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)).cuda()
x = torch.randn(32, 10, device="cuda", requires_grad=True)
out = Square.apply(net(x))
out.sum().backward()
check("the backward pass runs in another thread", seen and seen[0] != here)
exact("gradients", x.grad, *(p.grad for p in net.parameters()))

first = torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]
second = torch.autograd.grad(first.square().sum(), net[0].weight)[0]
exact("second derivative", second)
exact("jacobian", torch.autograd.functional.jacobian(lambda v: net(v).squeeze(-1), x[:3]))
exact("vmap of grad", torch.func.vmap(torch.func.grad(lambda v: net(v).sum()))(x.detach()))
exact("hessian", torch.func.hessian(lambda v: net(v).sum())(x[0].detach()))

norms = []
hook = x.register_hook(lambda gradient: norms.append(gradient.norm().item()))
net(x).mean().backward()
hook.remove()
show("norm in a hook", *norms)

x.grad = None
checkpoint(net, x, use_reentrant=False).sum().backward()
plain = torch.autograd.grad(net(x).sum(), x)[0]
check("checkpointing gives the same", torch.equal(plain, x.grad))


def work(results, number):
    weight = torch.full((64, 64), 0.01 * (number + 1), device="cuda", requires_grad=True)
    for _ in range(20):
        (weight @ weight).tanh().sum().backward()
    results[number] = weight.grad


results = {}
threads = [threading.Thread(target=work, args=(results, number)) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
exact("six threads", *(results[number] for number in range(6)))

side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    loss = net(x).square().mean()
torch.cuda.current_stream().wait_stream(side)
exact("gradient of another stream's work", torch.autograd.grad(loss, x)[0])
