#: title = "Fourier transforms (cuFFT): real, complex, odd sizes, several dimensions, half precision"
#: wants = ["torch"]
import torch
from compat import check, exact

torch.manual_seed(6)
for kind in (torch.float32, torch.float64):
    x = torch.randn(3, 1000, 96, dtype=kind).cuda()
    z = torch.complex(x, x.flip(1))
    name = str(kind)[6:]
    exact(f"{name} 1d", torch.fft.fft(z), torch.fft.rfft(x), torch.fft.ihfft(x))
    exact(f"{name} over another dimension", torch.fft.fft(z, dim=1), torch.fft.rfft(x, dim=1, norm="ortho"))
    exact(f"{name} 2d", torch.fft.fft2(z), torch.fft.rfft2(x))
    exact(f"{name} 3d", torch.fft.fftn(z), torch.fft.ifftn(z))
    for size in (1, 7, 97, 1009, 4093):
        exact(f"{name} length {size}", torch.fft.fft(z, n=size, dim=1))
    back = torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[1:])
    check(f"{name} and back", (back - x).abs().max().item() < (1e-4 if kind == torch.float32 else 1e-12))
exact("half precision", torch.fft.rfft(torch.randn(64, 1024).half().cuda()))
wave = torch.randn(2, 16000).cuda()
spectrum = torch.stft(wave, 512, window=torch.hann_window(512).cuda(), return_complex=True)
exact("stft", spectrum)
check("istft", (torch.istft(spectrum, 512, window=torch.hann_window(512).cuda(), length=16000) - wave).abs().max().item() < 1e-4)
signal = torch.randn(4096, device="cuda", requires_grad=True)
torch.fft.rfft(signal).abs().sum().backward()
exact("gradient", signal.grad)
