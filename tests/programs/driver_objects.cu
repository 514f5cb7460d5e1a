// Contexts, streams, events, modules, libraries, kernels and launches through the driver API: the
// calls that frameworks make and the runtime's own programs do not.
#include "check.h"
#include "driver.h"

#include <cstring>
#include <string>
#include <unistd.h>

static const char PTX[] = R"(
.version 7.0
.target sm_52
.address_size 64

.visible .entry first(.param .u64 out, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}

.visible .entry second()
{
    ret;
}
)";

static CUdevice device;

static void contexts() {
    CUcontext current, own, popped;
    CHECK_DRIVER(DRIVER(cuCtxGetCurrent)(&current));
    unsigned long long id = 0, other_id = 0;
    CHECK_DRIVER(DRIVER(cuCtxGetId)(current, &id));
    CHECK_DRIVER(DRIVER(cuCtxCreate)(&own, nullptr, CU_CTX_SCHED_SPIN, device));
    CHECK_DRIVER(DRIVER(cuCtxGetId)(own, &other_id));
    EXPECT(id != other_id);
    unsigned flags = 0, api = 0;
    CHECK_DRIVER(DRIVER(cuCtxGetFlags)(&flags));
    EXPECT((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_SPIN);
    CHECK_DRIVER(DRIVER(cuCtxGetApiVersion)(own, &api));
    EXPECT(api >= 3010);
    CUfunc_cache cache;
    CHECK_DRIVER(DRIVER(cuCtxGetCacheConfig)(&cache));
    CHECK_DRIVER(DRIVER(cuCtxSetCacheConfig)(CU_FUNC_CACHE_PREFER_L1));
    int least = 1, greatest = 1;
    CHECK_DRIVER(DRIVER(cuCtxGetStreamPriorityRange)(&least, &greatest));
    EXPECT(least == 0 && greatest <= 0);
    CHECK_DRIVER(DRIVER(cuCtxResetPersistingL2Cache)());
    size_t limit = 0;
    CHECK_DRIVER(DRIVER(cuCtxGetLimit)(&limit, CU_LIMIT_PRINTF_FIFO_SIZE));
    EXPECT(limit > 0);
    CHECK_DRIVER(DRIVER(cuCtxPopCurrent)(&popped));
    EXPECT(popped == own);
    CHECK_DRIVER(DRIVER(cuCtxPushCurrent)(own));
    CHECK_DRIVER(DRIVER(cuCtxDestroy)(own));
    CHECK_DRIVER(DRIVER(cuCtxGetCurrent)(&popped));
    EXPECT(popped == current);
    printf("contexts: right\n");
}

static void devices() {
    int major = 0, minor = 0, attribute = 0;
    CHECK_DRIVER(DRIVER(cuDeviceComputeCapability)(&major, &minor, device));
    CHECK_DRIVER(DRIVER(cuDeviceGetAttribute)(&attribute, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    EXPECT(major == attribute);
    CUdevprop properties;
    CHECK_DRIVER(DRIVER(cuDeviceGetProperties)(&properties, device));
    EXPECT(properties.maxThreadsPerBlock == 1024 && properties.SIMDWidth == 32);
    printf("devices: right\n");
}

static void streams() {
    CUstream stream;
    CHECK_DRIVER(DRIVER(cuStreamCreateWithPriority)(&stream, CU_STREAM_NON_BLOCKING, -1));
    CUdevice of = -1;
    CHECK_DRIVER(DRIVER(cuStreamGetDevice)(stream, &of));
    EXPECT(of == device);
    unsigned long long id = 0, other = 0;
    CHECK_DRIVER(DRIVER(cuStreamGetId)(stream, &id));
    CHECK_DRIVER(DRIVER(cuStreamGetId)(nullptr, &other));
    EXPECT(id != other);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    CHECK_DRIVER(DRIVER(cuStreamIsCapturing)(stream, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
    status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    CHECK_DRIVER(DRIVER(cuStreamGetCaptureInfo)(stream, &status, nullptr, nullptr, nullptr, nullptr, nullptr));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK_DRIVER(DRIVER(cuThreadExchangeStreamCaptureMode)(&mode));
    EXPECT(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUevent event;
    CHECK_DRIVER(DRIVER(cuEventCreate)(&event, CU_EVENT_BLOCKING_SYNC));
    CHECK_DRIVER(DRIVER(cuEventRecordWithFlags)(event, stream, CU_EVENT_RECORD_DEFAULT));
    // External ones are for captures.
    EXPECT(DRIVER(cuEventRecordWithFlags)(event, stream, CU_EVENT_RECORD_EXTERNAL) != CUDA_SUCCESS);
    EXPECT(DRIVER(cuStreamWaitEvent)(stream, event, CU_EVENT_WAIT_EXTERNAL) != CUDA_SUCCESS);
    CHECK_DRIVER(DRIVER(cuEventSynchronize)(event));
    CHECK_DRIVER(DRIVER(cuEventDestroy)(event));
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    printf("streams: right\n");
}

static unsigned fetch(CUdeviceptr from) {
    unsigned value = 0;
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(&value, from, sizeof value));
    return value;
}

static void launches(CUfunction function, CUdeviceptr out) {
    unsigned value = 41;
    void* parameters[] = {&out, &value};
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    attribute.value.priority = 0;
    CUlaunchConfig config = {};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.attrs = &attribute, config.numAttrs = 1;
    CHECK_DRIVER(DRIVER(cuLaunchKernelEx)(&config, function, parameters, nullptr));
    EXPECT(fetch(out) == 41);
    value = 42;
    CHECK_DRIVER(DRIVER(cuLaunchCooperativeKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters));
    EXPECT(fetch(out) == 42);
    config.gridDimX = 0;
    EXPECT_DRIVER(DRIVER(cuLaunchKernelEx)(&config, function, parameters, nullptr), CUDA_ERROR_INVALID_VALUE);
    printf("launches: right\n");
}

static void functions(CUdeviceptr out) {
    CUmodule module;
    CHECK_DRIVER(DRIVER(cuModuleLoadData)(&module, PTX));
    unsigned count = 0;
    CHECK_DRIVER(DRIVER(cuModuleGetFunctionCount)(&count, module));
    EXPECT(count == 2);
    CUfunction all[2];
    CHECK_DRIVER(DRIVER(cuModuleEnumerateFunctions)(all, 2, module));
    std::string names;
    for (CUfunction function : all) {
        const char* name = nullptr;
        CHECK_DRIVER(DRIVER(cuFuncGetName)(&name, function));
        names += name;
    }
    EXPECT(names == "firstsecond" || names == "secondfirst");
    CUfunction function;
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&function, module, "first"));
    CUmodule of = nullptr;
    CHECK_DRIVER(DRIVER(cuFuncGetModule)(&of, function));
    EXPECT(of == module);
    CUfunctionLoadingState loading;
    CHECK_DRIVER(DRIVER(cuFuncLoad)(function));
    CHECK_DRIVER(DRIVER(cuFuncIsLoaded)(&loading, function));
    EXPECT(loading == CU_FUNCTION_LOADING_STATE_LOADED);
    CHECK_DRIVER(DRIVER(cuFuncSetCacheConfig)(function, CU_FUNC_CACHE_PREFER_SHARED));
    CHECK_DRIVER(DRIVER(cuFuncSetAttribute)(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
    int value = 0;
    CHECK_DRIVER(DRIVER(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
    EXPECT(value == 60000);
    EXPECT_DRIVER(DRIVER(cuFuncSetAttribute)(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 1), CUDA_ERROR_INVALID_VALUE);
    size_t offset = 99, size = 99;
    CHECK_DRIVER(DRIVER(cuFuncGetParamInfo)(function, 1, &offset, &size));
    EXPECT(offset == 8 && size == 4);
    EXPECT_DRIVER(DRIVER(cuFuncGetParamInfo)(function, 2, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    int blocks = 0, grid = 0, block = 0;
    CHECK_DRIVER(DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, function, 256, 0));
    EXPECT(blocks >= 1);
    CHECK_DRIVER(DRIVER(cuOccupancyMaxPotentialBlockSize)(&grid, &block, function, nullptr, 0, 0));
    EXPECT(grid >= 1 && block >= 32 && block <= 1024);
    size_t dynamic = 0;
    CHECK_DRIVER(DRIVER(cuOccupancyAvailableDynamicSMemPerBlock)(&dynamic, function, 2, 256));
    EXPECT(dynamic > 0);
    printf("functions: right\n");
    launches(function, out);
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
}

static void libraries(CUdeviceptr out) {
    char name[] = "/tmp/driver_objects_XXXXXX";
    int file = mkstemp(name);
    EXPECT(file >= 0 && write(file, PTX, strlen(PTX)) == static_cast<ssize_t>(strlen(PTX)));
    close(file);
    CUmodule module;
    CHECK_DRIVER(DRIVER(cuModuleLoad)(&module, name));
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
    CUlibrary library, of;
    CHECK_DRIVER(DRIVER(cuLibraryLoadFromFile)(&library, name, nullptr, nullptr, 0, nullptr, nullptr, 0));
    unlink(name);
    unsigned count = 0;
    CHECK_DRIVER(DRIVER(cuLibraryGetKernelCount)(&count, library));
    EXPECT(count == 2);
    CUkernel all[2], kernel;
    CHECK_DRIVER(DRIVER(cuLibraryEnumerateKernels)(all, 2, library));
    CHECK_DRIVER(DRIVER(cuLibraryGetKernel)(&kernel, library, "first"));
    EXPECT(kernel == all[0] || kernel == all[1]);
    EXPECT_DRIVER(DRIVER(cuLibraryGetKernel)(&kernel, library, "third"), CUDA_ERROR_NOT_FOUND);
    CHECK_DRIVER(DRIVER(cuLibraryGetKernel)(&kernel, library, "first"));
    const char* text = nullptr;
    CHECK_DRIVER(DRIVER(cuKernelGetName)(&text, kernel));
    EXPECT(strcmp(text, "first") == 0);
    CHECK_DRIVER(DRIVER(cuKernelGetLibrary)(&of, kernel));
    EXPECT(of == library);
    size_t offset = 99, size = 99;
    CHECK_DRIVER(DRIVER(cuKernelGetParamInfo)(kernel, 0, &offset, &size));
    EXPECT(offset == 0 && size == 8);
    CHECK_DRIVER(DRIVER(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50000, kernel, device));
    int value = 0;
    CHECK_DRIVER(DRIVER(cuKernelGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, device));
    EXPECT(value == 50000);
    // A kernel in a function's place.
    unsigned wanted = 43;
    void* parameters[] = {&out, &wanted};
    CHECK_DRIVER(DRIVER(cuLaunchKernel)(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    EXPECT(fetch(out) == 43);
    CHECK_DRIVER(DRIVER(cuLibraryUnload)(library));
    printf("libraries: right\n");
}

int main() {
    CHECK(cudaFree(nullptr));  // the primary context is there and current
    CHECK_DRIVER(DRIVER(cuCtxGetDevice)(&device));
    CUdeviceptr out;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&out, 4));
    contexts();
    devices();
    streams();
    functions(out);
    libraries(out);
    CHECK_DRIVER(DRIVER(cuMemFree)(out));
    printf("driver_objects: done\n");
    return outcome();
}
