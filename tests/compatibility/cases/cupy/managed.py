#: title = "managed memory: touched by host and device in turn, prefetch, advice"
#: wants = ["cupy"]
import cupy as cp
import numpy as np
from compat import check, exact

pool = cp.cuda.MemoryPool(cp.cuda.malloc_managed)
with cp.cuda.using_allocator(pool.malloc):
    x = cp.arange(100_000, dtype=cp.float64)
    x *= 3
    cp.cuda.Device().synchronize()
    # The host looks at the same memory.
    import ctypes

    view = np.ctypeslib.as_array((ctypes.c_double * 100_000).from_address(x.data.ptr))
    check("the host sees what the device wrote", np.array_equal(view, np.arange(100_000) * 3.0))
    view[::2] = -1
    y = x + 1
    exact("the device sees what the host wrote", y)
    cp.cuda.runtime.memAdvise(x.data.ptr, x.nbytes, 3, 0) if hasattr(cp.cuda.runtime, "memAdvise") else None
    view[5] = 77
    exact("again", x * 1)
