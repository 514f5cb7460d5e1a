#: title = "cuda.bindings.driver and nvrtc: a program compiled, loaded and launched"
#: wants = ["cuda.bindings"]
import numpy as np
from compat import check, exact, show
from cuda.bindings import driver, nvrtc

SOURCE = b"""extern "C" __global__ void saxpy(float a, const float *x, float *y, size_t n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}"""


def ok(result):
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"FAILED: {status!r}")
    return values[0] if len(values) == 1 else values


ok(driver.cuInit(0))
show("version", ok(driver.cuDriverGetVersion()))
device = ok(driver.cuDeviceGet(0))
show("name", ok(driver.cuDeviceGetName(64, device)).rstrip(b"\0").decode())
attribute = driver.CUdevice_attribute
major, minor = (
    ok(driver.cuDeviceGetAttribute(which, device))
    for which in (attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
)
context = ok(driver.cuDevicePrimaryCtxRetain(device))
ok(driver.cuCtxSetCurrent(context))
program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"saxpy.cu", 0, [], []))
options = [f"--gpu-architecture=sm_{major}{minor}".encode()]
ok(nvrtc.nvrtcCompileProgram(program, len(options), options))
size = ok(nvrtc.nvrtcGetCUBINSize(program))
image = b" " * size
ok(nvrtc.nvrtcGetCUBIN(program, image))
module = ok(driver.cuModuleLoadData(image))
kernel = ok(driver.cuModuleGetFunction(module, b"saxpy"))
show("registers", ok(driver.cuFuncGetAttribute(driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, kernel)))
n = 100_000
x, y = np.arange(n, dtype=np.float32), np.ones(n, dtype=np.float32)
stream = ok(driver.cuStreamCreate(0))
dx, dy = ok(driver.cuMemAlloc(x.nbytes)), ok(driver.cuMemAlloc(y.nbytes))
ok(driver.cuMemcpyHtoDAsync(dx, x.ctypes.data, x.nbytes, stream))
ok(driver.cuMemcpyHtoDAsync(dy, y.ctypes.data, y.nbytes, stream))
values = [np.array([2.0], dtype=np.float32), np.array([int(dx)], dtype=np.uint64), np.array([int(dy)], dtype=np.uint64), np.array([n], dtype=np.uint64)]
arguments = np.array([value.ctypes.data for value in values], dtype=np.uint64)
ok(driver.cuLaunchKernel(kernel, (n + 255) // 256, 1, 1, 256, 1, 1, 0, stream, arguments.ctypes.data, 0))
ok(driver.cuMemcpyDtoHAsync(y.ctypes.data, dy, y.nbytes, stream))
ok(driver.cuStreamSynchronize(stream))
check("the result", np.array_equal(y, 2 * x + 1))
exact("y", y)
for address in (dx, dy):
    ok(driver.cuMemFree(address))
ok(driver.cuStreamDestroy(stream))
ok(driver.cuModuleUnload(module))
ok(driver.cuDevicePrimaryCtxRelease(device))
