#: title = "Triton: tensor descriptors (TMA) made by host and device, device_print"
#: wants = ["torch", "triton"]
#: timeout = 90
import torch
import triton
import triton.language as tl
from compat import check, exact
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def by_host(source, target, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    target.store([row, column], source.load([row, column]) * 2)


@triton.jit
def by_device(source, target, rows, columns, M: tl.constexpr, N: tl.constexpr):
    block = tl.make_tensor_descriptor(source, shape=[rows, columns], strides=[columns, 1], block_shape=[M, N])
    out = tl.make_tensor_descriptor(target, shape=[rows, columns], strides=[columns, 1], block_shape=[M, N])
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    out.store([row, column], block.load([row, column]) + 1)


@triton.jit
def speak(x):
    tl.device_print("value", tl.load(x + tl.program_id(0)))


torch.manual_seed(3)
x = torch.randn(256, 512, device="cuda")
y = torch.empty_like(x)
by_host[(4, 8)](TensorDescriptor.from_tensor(x, [64, 64]), TensorDescriptor.from_tensor(y, [64, 64]), M=64, N=64)
check("descriptors of the host", torch.equal(y, x * 2))
triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
by_device[(4, 8)](x, y, 256, 512, M=64, N=64)
check("descriptors of the device", torch.equal(y, x + 1))
exact("result", y)
speak[(1,)](torch.tensor([42], device="cuda"), num_warps=1)
torch.cuda.synchronize()
