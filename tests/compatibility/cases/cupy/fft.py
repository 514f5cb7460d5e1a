#: title = "Fourier transforms (cuFFT)"
#: wants = ["cupy"]
import cupy as cp
import numpy as np
from compat import check, exact

rng = np.random.default_rng(2)
for kind in (np.float32, np.float64):
    host = rng.standard_normal((8, 1000)).astype(kind)
    x = cp.asarray(host)
    exact(f"{kind.__name__}", cp.fft.fft(x), cp.fft.rfft(x), cp.fft.fft2(x), cp.fft.fft(x, axis=0))
    check("as on the host", np.allclose(cp.asnumpy(cp.fft.fft(x)), np.fft.fft(host), atol=1e-2))
    check("and back", cp.allclose(cp.fft.irfft(cp.fft.rfft(x), n=1000), x, atol=1e-4))
plan = cp.fft.config.get_plan_cache()
check("plans are kept", plan.get_curr_size() > 0)
from cupyx.scipy import fft as scipy_fft  # noqa: E402
from cupyx.scipy import signal  # noqa: E402

exact("cosine transform", scipy_fft.dct(cp.arange(256, dtype=cp.float32)))
exact("convolution", signal.fftconvolve(cp.arange(500, dtype=cp.float32), cp.ones(31, dtype=cp.float32)))
