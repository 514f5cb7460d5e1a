#: title = "convolutions (cuDNN) in 1, 2 and 3 dimensions, grouped, transposed, forward and backward; pooling, batch norm"
#: wants = ["torch"]
#: timeout = 120
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
import torch.nn.functional as F
from compat import exact

torch.manual_seed(3)
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False


def both(name, function, *inputs):
    """The result and every gradient."""
    inputs = [value.cuda().requires_grad_() for value in inputs]
    out = function(*inputs)
    out.backward(torch.linspace(-1, 1, out.numel(), device="cuda", dtype=torch.float32).view(out.shape).to(out.dtype))
    exact(name, out, *(value.grad for value in inputs))


for kind in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    name = str(kind)[6:]
    image = torch.randn(4, 16, 33, 29).to(kind)
    both(f"{name} 2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), image, torch.randn(24, 16, 3, 3).to(kind), torch.randn(24).to(kind))
    both(f"{name} strided", lambda x, w: F.conv2d(x, w, stride=2, dilation=2), image, torch.randn(8, 16, 5, 5).to(kind))
    both(f"{name} grouped", lambda x, w: F.conv2d(x, w, groups=4), image, torch.randn(8, 4, 3, 3).to(kind))
    both(f"{name} depthwise", lambda x, w: F.conv2d(x, w, groups=16), image, torch.randn(16, 1, 3, 3).to(kind))
    both(f"{name} transposed", lambda x, w: F.conv_transpose2d(x, w, stride=2), image, torch.randn(16, 6, 4, 4).to(kind))
    both(f"{name} 1d", lambda x, w: F.conv1d(x, w, padding=3), torch.randn(3, 12, 500).to(kind), torch.randn(20, 12, 7).to(kind))
    both(f"{name} 3d", lambda x, w: F.conv3d(x, w), torch.randn(2, 4, 9, 10, 11).to(kind), torch.randn(5, 4, 3, 3, 3).to(kind))
    last = image.to(memory_format=torch.channels_last)
    both(f"{name} channels last", lambda x, w: F.conv2d(x, w.to(memory_format=torch.channels_last)), last, torch.randn(32, 16, 3, 3).to(kind))
    both(f"{name} average pool", lambda x: F.avg_pool2d(x, 3, 2), image)
    norm = torch.nn.BatchNorm2d(16).cuda().to(kind)
    both(f"{name} batch norm", norm, image)
    exact(f"{name} running statistics", norm.running_mean, norm.running_var)
exact("max pool", F.max_pool2d(torch.randn(2, 3, 40, 40).cuda(), 2))
exact("resized", F.interpolate(torch.randn(1, 3, 20, 20).cuda(), scale_factor=2.5, mode="bilinear"))
