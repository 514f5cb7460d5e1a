#: title = "device arrays, streams, events, pinned, mapped and managed arrays, memory statistics, IPC within a process"
#: wants = ["numba", "numba_cuda"]
#: timeout = 90
import numba_start
import numpy as np
from compat import check, exact

cuda = numba_start.start()


@cuda.jit
def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor


host = np.arange(100_000, dtype=np.float64)
device = cuda.to_device(host)
scale[400, 256](device, 2.0)
exact("copied back", device)
check("a slice", np.array_equal(device[10:20].copy_to_host(), host[10:20] * 2))
stream = cuda.stream()
start, end = cuda.event(), cuda.event()
pinned = cuda.pinned_array(100_000, dtype=np.float64)
pinned[:] = host
start.record(stream)
there = cuda.to_device(pinned, stream=stream)
scale[400, 256, stream](there, 3.0)
there.copy_to_host(pinned, stream=stream)
end.record(stream)
stream.synchronize()
check("asynchronous", np.array_equal(pinned, host * 3) and cuda.event_elapsed_time(start, end) > 0)
with cuda.pinned(host):
    exact("page-locked for a while", cuda.to_device(host, stream=stream))
cuda.synchronize()
mapped = cuda.mapped_array(1000, dtype=np.float32)
mapped[:] = 5
scale[4, 256](mapped, 2.0)
cuda.synchronize()
check("mapped memory", (np.asarray(mapped) == 10).all())
managed = cuda.managed_array(1000, dtype=np.float32)
managed[:] = 7
scale[4, 256](managed, 2.0)
cuda.synchronize()
check("managed memory", (np.asarray(managed) == 14).all())
info = cuda.current_context().get_memory_info()
check("statistics", 0 < info.free <= info.total)
exact("zeroed", cuda.device_array_like(host).copy_to_device(np.zeros_like(host)) or np.zeros(1))
