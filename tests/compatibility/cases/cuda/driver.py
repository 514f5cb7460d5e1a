#: title = "the driver API by hand, from PTX, with libcuda.so.1 opened by name"
#: software = true
import ctypes
import struct

from compat import check, show

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry triple(.param .u64 data, .param .u32 count)
{
    .reg .u32 %r<6>;
    .reg .u64 %d<4>;
    .reg .pred %p;
    ld.param.u64 %d1, [data];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r2, %r2, %r3, %r4;
    setp.ge.u32 %p, %r2, %r1;
    @%p ret;
    mul.wide.u32 %d2, %r2, 4;
    add.u64 %d1, %d1, %d2;
    ld.global.u32 %r5, [%d1];
    mul.lo.u32 %r5, %r5, 3;
    st.global.u32 [%d1], %r5;
    ret;
}
\0"""

cuda = ctypes.CDLL("libcuda.so.1")
NAMES = {"cuMemAlloc", "cuMemFree", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuCtxSetCurrent", "cuDeviceTotalMem"}


def call(name, *args):
    versioned = f"{name}_v2" if name in NAMES and name != "cuCtxSetCurrent" else name
    status = getattr(cuda, versioned)(*args)
    if status != 0:
        raise SystemExit(f"FAILED: {name}: error {status}")


call("cuInit", 0)
version, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuDriverGetVersion", ctypes.byref(version))
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(function), module, b"triple")
check("an unknown function is not found", cuda.cuModuleGetFunction(ctypes.byref(ctypes.c_void_p()), module, b"nothing") == 500)

count = 1000
data = ctypes.c_uint64()
call("cuMemAlloc", ctypes.byref(data), ctypes.c_size_t(4 * count))
numbers = (ctypes.c_uint32 * count)(*range(count))
call("cuMemcpyHtoD", data, numbers, ctypes.c_size_t(4 * count))
arguments = [ctypes.c_uint64(data.value), ctypes.c_uint32(count)]
pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(argument) for argument in arguments))
call("cuLaunchKernel", function, 8, 1, 1, 128, 1, 1, 0, None, pointers, None)
call("cuMemcpyDtoH", numbers, data, ctypes.c_size_t(4 * count))
check("every number is three times what it was", all(numbers[i] == 3 * i for i in range(count)))

# The same parameters as one buffer.
buffer = ctypes.create_string_buffer(struct.pack("QI", data.value, count - 1))
size = ctypes.c_size_t(12)
extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
call("cuLaunchKernel", function, 8, 1, 1, 128, 1, 1, 0, None, None, extra)
call("cuCtxSynchronize")
call("cuMemcpyDtoH", numbers, data, ctypes.c_size_t(4 * count))
show("sum", sum(numbers))
show("last", numbers[count - 1])
call("cuMemFree", data)
call("cuModuleUnload", module)
call("cuDevicePrimaryCtxRelease_v2", 0)
