// The driver API alone: a module from PTX text, launches with parameters as pointers and as one
// buffer, globals, attributes, and every kind of wrong handle.
#include "check.h"
#include "driver.h"

#include <cstring>
#include <string>

static const char PTX[] = R"(
.version 7.0
.target sm_52
.address_size 64

.global .align 4 .u32 launches = 0;
.const .align 4 .f32 factor = 0f40400000;

.visible .entry scale_and_add(.param .u64 values, .param .f32 offset, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .f32 %f<5>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [values];
    ld.param.f32 %f1, [offset];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    ld.const.f32 %f3, [factor];
    fma.rn.f32 %f4, %f2, %f3, %f1;
    st.global.f32 [%rd4], %f4;
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra DONE;
    atom.global.add.u32 %r6, [launches], 1;
DONE:
    ret;
}
)";

int main() {
    CHECK_DRIVER(DRIVER(cuInit)(0));
    int count = 0, version = 0;
    CHECK_DRIVER(DRIVER(cuDeviceGetCount)(&count));
    CHECK_DRIVER(DRIVER(cuDriverGetVersion)(&version));
    EXPECT(count >= 1 && version >= 13000);
    CUdevice device;
    CHECK_DRIVER(DRIVER(cuDeviceGet)(&device, 0));
    EXPECT_DRIVER(DRIVER(cuDeviceGet)(&device, count), CUDA_ERROR_INVALID_DEVICE);
    CHECK_DRIVER(DRIVER(cuDeviceGet)(&device, 0));
    EXPECT_DRIVER_EITHER(DRIVER(cuMemFree)(0x1000), CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE);

    CUcontext context;
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&context, device));
    CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(context));

    CUmodule module;
    CUfunction function;
    CHECK_DRIVER(DRIVER(cuModuleLoadData)(&module, PTX));
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&function, module, "scale_and_add"));
    EXPECT_DRIVER(DRIVER(cuModuleGetFunction)(&function, module, "nothing_of_that_name"), CUDA_ERROR_NOT_FOUND);
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&function, module, "scale_and_add"));

    const unsigned n = 1000;
    std::vector<float> values(n);
    for (unsigned i = 0; i < n; i++) values[i] = static_cast<float>(i);
    CUdeviceptr memory;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, n * sizeof(float)));
    CHECK_DRIVER(DRIVER(cuMemcpyHtoD)(memory, values.data(), n * sizeof(float)));

    // Parameters one by one.
    float offset = 0.5f;
    unsigned size = n;
    void* parameters[] = {&memory, &offset, &size};
    CHECK_DRIVER(DRIVER(cuLaunchKernel)(function, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr));
    offset = 1e9f;  // the launch took its copy

    // Parameters as one buffer.
    struct {
        CUdeviceptr memory;
        float offset;
        unsigned size;
    } packed = {memory, -2.0f, n};
    size_t packed_size = sizeof(packed);
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_size,
                     CU_LAUNCH_PARAM_END};
    CHECK_DRIVER(DRIVER(cuLaunchKernel)(function, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    std::vector<float> result(n);
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(result.data(), memory, n * sizeof(float)));
    for (unsigned i = 0; i < n; i++) {
        EXPECT(result[i] == (static_cast<float>(i) * 3 + 0.5f) * 3 - 2.0f);
    }
    printf("launches with both forms of parameters: right\n");

    CUdeviceptr global;
    size_t global_size = 0;
    unsigned launches = 0;
    CHECK_DRIVER(DRIVER(cuModuleGetGlobal)(&global, &global_size, module, "launches"));
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(&launches, global, sizeof(launches)));
    EXPECT(global_size == 4 && launches == 2);
    size_t parameter_offset = 0, parameter_size = 0;
    CHECK_DRIVER(DRIVER(cuFuncGetParamInfo)(function, 1, &parameter_offset, &parameter_size));
    EXPECT(parameter_offset == 8 && parameter_size == 4);
    EXPECT_DRIVER(DRIVER(cuFuncGetParamInfo)(function, 3, &parameter_offset, &parameter_size), CUDA_ERROR_INVALID_VALUE);
    int threads = 0;
    CHECK_DRIVER(DRIVER(cuFuncGetAttribute)(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    EXPECT(threads == 1024);

    // What cannot be loaded.
    CUmodule bad;
    EXPECT_DRIVER_EITHER(DRIVER(cuModuleLoadData)(&bad, "this is no PTX"), CUDA_ERROR_INVALID_PTX, CUDA_ERROR_INVALID_IMAGE);
    char log[4096] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* option_values[] = {log, reinterpret_cast<void*>(sizeof(log))};
    std::string wrong = PTX;
    wrong.replace(wrong.find("add.s64"), 7, "bad.s64");
    EXPECT_DRIVER(DRIVER(cuModuleLoadDataEx)(&bad, wrong.c_str(), 2, options, option_values), CUDA_ERROR_INVALID_PTX);
    EXPECT(strlen(log) > 0);
    EXPECT_DRIVER(DRIVER(cuModuleLoad)(&bad, "/nonexistent/file.ptx"), CUDA_ERROR_FILE_NOT_FOUND);

    // What cannot be launched.
    EXPECT_DRIVER(DRIVER(cuLaunchKernel)(function, 0, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr),
                  CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuLaunchKernel)(function, 1, 1, 1, 2048, 1, 1, 0, nullptr, parameters, nullptr),
                  CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuLaunchKernel)(nullptr, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr),
                  CUDA_ERROR_INVALID_HANDLE);

    unsigned char byte_pattern = 0xa5;
    CHECK_DRIVER(DRIVER(cuMemsetD8)(memory, byte_pattern, 10));
    CHECK_DRIVER(DRIVER(cuMemsetD32)(memory + 16, 0x01020304, 3));
    unsigned char bytes[28];
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(bytes, memory, sizeof(bytes)));
    EXPECT(bytes[9] == 0xa5 && bytes[16] == 4 && bytes[19] == 1 && bytes[27] == 1);

    CUdeviceptr base;
    size_t range = 0;
    CHECK_DRIVER(DRIVER(cuMemGetAddressRange)(&base, &range, memory + 100));
    EXPECT(base == memory && range >= n * sizeof(float));
    CHECK_DRIVER(DRIVER(cuMemFree)(memory));
    EXPECT_DRIVER(DRIVER(cuMemFree)(memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRelease)(device));

    const char* text = nullptr;
    CHECK_DRIVER(DRIVER(cuGetErrorString)(CUDA_ERROR_OUT_OF_MEMORY, &text));
    printf("%s\n", text);
    EXPECT_DRIVER(DRIVER(cuGetErrorName)(static_cast<CUresult>(123456), &text), CUDA_ERROR_INVALID_VALUE);
    printf("driver_api: done\n");
    return outcome();
}
