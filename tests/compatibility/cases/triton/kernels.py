#: title = "Triton: vector addition, reductions, atomics, softmax, launch with several grids"
#: wants = ["torch", "triton"]
#: timeout = 90
import torch
import triton
import triton.language as tl
from compat import check, exact, show


@triton.jit
def add(x, y, out, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def softmax(x, out, width, SIZE: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, SIZE)
    value = tl.load(x + row * width + column, mask=column < width, other=-float("inf"))
    top = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * width + column, top / tl.sum(top, 0), mask=column < width)


@triton.jit
def count(x, bins, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.atomic_add(bins + tl.load(x + at, mask=at < n, other=0), 1, mask=at < n)


torch.manual_seed(1)
n = 98_765
x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
out = torch.empty_like(x)
for size in (128, 1024):
    add[(triton.cdiv(n, size),)](x, y, out, n, SIZE=size)
    check(f"sum with blocks of {size}", torch.equal(out, x + y))
exact("sum", out)
table = torch.randn(300, 777, device="cuda")
result = torch.empty_like(table)
softmax[(300,)](table, result, 777, SIZE=1024, num_warps=8)
check("softmax", torch.allclose(result, table.softmax(1), atol=1e-6))
exact("softmax", result)
numbers = torch.randint(0, 50, (n,), device="cuda", dtype=torch.int32)
bins = torch.zeros(50, device="cuda", dtype=torch.int32)
count[(triton.cdiv(n, 512),)](numbers, bins, n, SIZE=512)
check("atomics", torch.equal(bins.long(), torch.bincount(numbers.long(), minlength=50)))
compiled = add.warmup(x, y, out, n, SIZE=256, grid=(1,))
show("compiled for", compiled.metadata.target.backend, compiled.metadata.target.arch, compiled.metadata.num_warps)
