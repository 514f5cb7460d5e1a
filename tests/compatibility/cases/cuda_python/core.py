#: title = "cuda.core: devices, streams, programs, launches, memory resources, events"
#: wants = ["cuda.core"]
import ctypes

from compat import check, show

try:
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
except ImportError:
    from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch

device = Device(0)
device.set_current()
show("device", device.name, device.compute_capability, device.properties.multiprocessor_count, device.uuid)
stream = device.create_stream()
arch = "".join(str(part) for part in device.compute_capability)
SOURCE = """
template <typename T> __global__ void add(const T *a, const T *b, T *c, size_t n) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}"""
program = Program(SOURCE, code_type="c++", options=ProgramOptions(std="c++17", arch=f"sm_{arch}"))
code = program.compile("cubin", name_expressions=("add<int>", "add<double>"))
kernel = code.get_kernel("add<int>")
threads = kernel.attributes.max_threads_per_block
check("the kernel's attributes", (threads() if callable(threads) else threads) >= 256)
count = 100_000
buffers = [device.allocate(4 * count, stream=stream) for _ in range(3)]
stream.sync()

import numpy as np  # noqa: E402
from cuda.bindings import driver  # noqa: E402

a, b = np.arange(count, dtype=np.int32), np.arange(count, dtype=np.int32)[::-1].copy()
for buffer, host in zip(buffers, (a, b)):
    driver.cuMemcpyHtoD(int(buffer.handle), host.ctypes.data, host.nbytes)
start = stream.record()
launch(stream, LaunchConfig(grid=64, block=256), kernel, *buffers, ctypes.c_size_t(count))
end = stream.record()
stream.sync()
out = np.empty_like(a)
driver.cuMemcpyDtoH(out.ctypes.data, int(buffers[2].handle), out.nbytes)
check("the sum", (out == count - 1).all())
check("events are over", start.is_done and end.is_done)
for buffer in buffers:
    buffer.close(stream)
stream.sync()
stream.close()
