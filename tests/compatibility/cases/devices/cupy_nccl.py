#: title = "CuPy on all devices: copies, and NCCL's communicators of one process"
#: wants = ["cupy"]
#: devices = 2
#: timeout = 90
#: memory = 4
#: env = { NCCL_NVLS_ENABLE = "0" }
import cupy as cp
from compat import check, exact
from cupy.cuda import nccl

count = cp.cuda.runtime.getDeviceCount()
arrays = []
for i in range(count):
    with cp.cuda.Device(i):
        arrays.append(cp.arange(100_000, dtype=cp.float32) * (i + 1))
with cp.cuda.Device(count - 1):
    there = cp.asarray(arrays[0])
    exact("copied", there + arrays[-1])
with cp.cuda.Device(0):
    back = cp.empty(100_000, dtype=cp.float32)
    back.data.copy_from_device(there.data, there.nbytes)
    check("there and back", (back == arrays[0]).all())

comms = nccl.NcclCommunicator.initAll(list(range(count)))
results = []
for i in range(count):
    with cp.cuda.Device(i):
        results.append(cp.empty_like(arrays[i]))


def each(call):
    """Makes one group of a call for each device, and waits."""
    nccl.groupStart()
    for i in range(count):
        with cp.cuda.Device(i):
            call(i, comms[i], arrays[i].data.ptr, results[i].data.ptr, cp.cuda.Stream.null.ptr)
    nccl.groupEnd()
    for i in range(count):
        cp.cuda.Device(i).synchronize()


each(lambda i, comm, given, got, stream: comm.allReduce(given, got, 100_000, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream))
exact("all-reduce", *results)
each(lambda i, comm, given, got, stream: comm.broadcast(given, got, 100_000, nccl.NCCL_FLOAT32, 1, stream))
exact("broadcast", *results)


def around(i, comm, given, got, stream):
    comm.send(given, 100_000, nccl.NCCL_FLOAT32, (i + 1) % count, stream)
    comm.recv(got, 100_000, nccl.NCCL_FLOAT32, (i - 1) % count, stream)


each(around)
exact("sent around", *results)
for comm in comms:
    comm.destroy()
