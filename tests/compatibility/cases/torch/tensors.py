#: title = "tensors: creation, elementwise, reductions, sorting, indexing, random numbers, copies both ways"
#: wants = ["torch"]
import torch
from compat import check, exact, show

torch.manual_seed(1)
show("device", torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0), torch.cuda.device_count())
x = torch.randn(1000, 777).cuda()
exact("copied", x)
exact("elementwise", (x * 2 + 1).tanh(), x.exp().log1p(), torch.where(x > 0, x, -x), x.sigmoid() ** 3, torch.erf(x))
exact("reductions", x.sum(), x.mean(0), x.var(1), x.amax(0), x.argmin(1), x.norm(), x.prod(1), x.logsumexp(0))
exact("scans", x.cumsum(1), x.cumprod(0)[:5], x.cummax(1).values)
exact("sorted", *x.sort(dim=1), *x.topk(5, dim=0), x.flatten().kthvalue(1000).values, x.median())
index = torch.randint(0, 1000, (5000,)).cuda()
exact("indexed", x[index], x.index_select(0, index[:10]), x.gather(0, index.view(-1, 1)[:700].expand(-1, 777)))
exact("masked", x[x > 1.5], x.masked_fill(x < 0, 0), x.nonzero()[:100])
exact("unique", *torch.unique(index, return_counts=True))
exact("joined", torch.cat([x, x.flip(0)]), torch.stack([x, x]).transpose(0, 2).contiguous(), x.roll(3, 1))
exact("histogram", torch.bincount(index, minlength=1000), torch.histc(x, 50))
for kind in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int8, torch.bool, torch.complex64):
    exact(f"to {kind}", x.to(kind))
generator = torch.Generator(device="cuda").manual_seed(7)
exact("random", torch.randn(1 << 16, device="cuda", generator=generator), torch.randperm(1000, device="cuda", generator=generator))
torch.cuda.manual_seed(3)
exact("uniform", torch.rand(12345, device="cuda"), torch.bernoulli(torch.full((1000,), 0.3, device="cuda")))
state = torch.cuda.get_rng_state()
first = torch.rand(10, device="cuda")
torch.cuda.set_rng_state(state)
check("the state of the generator is restored", torch.equal(first, torch.rand(10, device="cuda")))

pinned = torch.randn(3_000_000).pin_memory()
check("pinned", pinned.is_pinned() and not torch.zeros(1).is_pinned())
there = pinned.cuda(non_blocking=True)
back = torch.empty_like(pinned).pin_memory()
back.copy_(there * 2, non_blocking=True)
torch.cuda.synchronize()
check("a pinned copy comes back", torch.equal(back, pinned * 2))
check("strided copies", torch.equal(x.cpu()[::3, ::2], x[::3, ::2].cpu()))
y = torch.zeros(10, 20, device="cuda")
y[2:8, ::4] = torch.arange(30.0).view(6, 5)
show("assigned", y.sum().item())
value = 0.0
for step in range(200):
    value += x[step, step % 777].item()
show("items", value)
show("error", str(torch.cuda.current_device()), torch.cuda.is_available(), torch.backends.cudnn.is_available())
