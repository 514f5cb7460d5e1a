#: title = "cuda.bindings.runtime: properties, memory, streams, events, graphs, callbacks of errors"
#: wants = ["cuda.bindings"]
import numpy as np
from compat import check, exact, show
from cuda.bindings import runtime


def ok(result):
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"FAILED: {status!r}")
    return values[0] if len(values) == 1 else values


show("devices", ok(runtime.cudaGetDeviceCount()))
properties = ok(runtime.cudaGetDeviceProperties(0))
show("properties", properties.name.decode(), properties.major, properties.minor, properties.multiProcessorCount, properties.totalGlobalMem, properties.l2CacheSize)
host = np.arange(1 << 20, dtype=np.int32)
device = ok(runtime.cudaMalloc(host.nbytes))
kind = runtime.cudaMemcpyKind
ok(runtime.cudaMemcpy(device, host.ctypes.data, host.nbytes, kind.cudaMemcpyHostToDevice))
stream = ok(runtime.cudaStreamCreate())
ok(runtime.cudaMemsetAsync(device, 0x11, 4096, stream))
event = ok(runtime.cudaEventCreate())
ok(runtime.cudaEventRecord(event, stream))
ok(runtime.cudaEventSynchronize(event))
back = np.empty_like(host)
ok(runtime.cudaMemcpy(back.ctypes.data, device, host.nbytes, kind.cudaMemcpyDeviceToHost))
exact("memory", back)
ok(runtime.cudaStreamBeginCapture(stream, runtime.cudaStreamCaptureMode.cudaStreamCaptureModeGlobal))
ok(runtime.cudaMemsetAsync(device, 0x22, 8192, stream))
graph = ok(runtime.cudaStreamEndCapture(stream))
exe = ok(runtime.cudaGraphInstantiate(graph, 0))
ok(runtime.cudaGraphLaunch(exe, stream))
ok(runtime.cudaStreamSynchronize(stream))
ok(runtime.cudaMemcpy(back.ctypes.data, device, host.nbytes, kind.cudaMemcpyDeviceToHost))
exact("after the graph", back)
status = runtime.cudaMalloc(1 << 50)[0]
check("too much is refused", status == runtime.cudaError_t.cudaErrorMemoryAllocation)
show("its name", ok(runtime.cudaGetErrorName(status)).decode())
runtime.cudaGetLastError()
free, total = ok(runtime.cudaMemGetInfo())
check("memory", 0 < free <= total)
ok(runtime.cudaFree(device))
