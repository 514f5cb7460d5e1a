// Green contexts: a share of the device's multiprocessors, streams in it, and events over all of
// its work.
#include "check.h"
#include "driver.h"

static const char PTX[] = R"(
.version 7.0
.target sm_52
.address_size 64

.visible .entry count(.param .u64 out)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    atom.global.add.u32 %r1, [%rd2], 1;
    ret;
}
)";

// cuda.h has it under this name alone.
static CUresult get_both(CUstream stream, CUcontext* context, CUgreenCtx* green) {
    return driver_symbol<CUresult(CUstream, CUcontext*, CUgreenCtx*)>("cuStreamGetCtx_v2")(stream, context, green);
}

static CUdevice device;
static CUcontext primary;

// A green context with the least share there is.
static CUgreenCtx make(CUdevResource* group) {
    CUdevResource whole, rest;
    CHECK_DRIVER(DRIVER(cuDeviceGetDevResource)(device, &whole, CU_DEV_RESOURCE_TYPE_SM));
    int multiprocessors = 0;
    CHECK_DRIVER(DRIVER(cuDeviceGetAttribute)(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    EXPECT(whole.type == CU_DEV_RESOURCE_TYPE_SM && whole.sm.smCount == static_cast<unsigned>(multiprocessors));
    EXPECT(whole.sm.minSmPartitionSize >= 1 && whole.sm.minSmPartitionSize <= whole.sm.smCount);
    unsigned least = whole.sm.minSmPartitionSize, groups = 0;
    CHECK_DRIVER(DRIVER(cuDevSmResourceSplitByCount)(nullptr, &groups, &whole, nullptr, 0, least));
    EXPECT(groups >= 1);
    groups = 1;
    CHECK_DRIVER(DRIVER(cuDevSmResourceSplitByCount)(group, &groups, &whole, &rest, 0, least));
    EXPECT(groups == 1 && group->type == CU_DEV_RESOURCE_TYPE_SM && group->sm.smCount >= least);
    EXPECT(group->sm.smCount + (rest.type == CU_DEV_RESOURCE_TYPE_SM ? rest.sm.smCount : 0) <= whole.sm.smCount);
    groups = 1;
    EXPECT(DRIVER(cuDevSmResourceSplitByCount)(group, &groups, &whole, nullptr, 0, whole.sm.smCount + 1) != CUDA_SUCCESS);
    groups = 1;
    CHECK_DRIVER(DRIVER(cuDevSmResourceSplitByCount)(group, &groups, &whole, &rest, 0, least));

    CUdevResourceDesc desc;
    CHECK_DRIVER(DRIVER(cuDevResourceGenerateDesc)(&desc, group, 1));
    CUgreenCtx green;
    EXPECT_DRIVER(DRIVER(cuGreenCtxCreate)(&green, desc, device, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuGreenCtxCreate)(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

int main() {
    CHECK(cudaFree(nullptr));
    CHECK_DRIVER(DRIVER(cuDeviceGet)(&device, 0));
    CHECK_DRIVER(DRIVER(cuCtxGetCurrent)(&primary));
    CUdevResource group, found;
    CUgreenCtx green = make(&group);
    CHECK_DRIVER(DRIVER(cuGreenCtxGetDevResource)(green, &found, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(found.sm.smCount == group.sm.smCount);
    CHECK_DRIVER(DRIVER(cuCtxGetDevResource)(primary, &found, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(found.sm.smCount >= group.sm.smCount);
    CUcontext converted, again;
    CHECK_DRIVER(DRIVER(cuCtxFromGreenCtx)(&converted, green));
    CHECK_DRIVER(DRIVER(cuCtxFromGreenCtx)(&again, green));
    EXPECT(converted != nullptr && converted == again && converted != primary);
    printf("a share of the device\n");

    CUmodule module;
    CUfunction count;
    CHECK_DRIVER(DRIVER(cuModuleLoadData)(&module, PTX));
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&count, module, "count"));
    DeviceArray<unsigned> total(1);
    total.zero();
    unsigned* pointer = total.get();
    void* arguments[] = {&pointer};

    CUstream stream, plain;
    EXPECT_DRIVER(DRIVER(cuGreenCtxStreamCreate)(&stream, green, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuGreenCtxStreamCreate)(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&plain, CU_STREAM_NON_BLOCKING));
    CUgreenCtx of = nullptr;
    CHECK_DRIVER(DRIVER(cuStreamGetGreenCtx)(stream, &of));
    EXPECT(of == green);
    CHECK_DRIVER(DRIVER(cuStreamGetGreenCtx)(plain, &of));
    EXPECT(of == nullptr);
    CUcontext context = primary;
    CHECK_DRIVER(get_both(stream, &context, &of));
    EXPECT(context == primary && of == green);
    CHECK_DRIVER(get_both(plain, &context, &of));
    EXPECT(context == primary && of == nullptr);

    // Work in the share, an event behind all of it, and work elsewhere that waits for that.
    CUevent event;
    CHECK_DRIVER(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 10; i++) {
        CHECK_DRIVER(DRIVER(cuLaunchKernel)(count, 4, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
    }
    CHECK_DRIVER(DRIVER(cuGreenCtxRecordEvent)(green, event));
    CHECK_DRIVER(DRIVER(cuStreamWaitEvent)(plain, event, 0));
    unsigned seen = 0;
    CHECK_DRIVER(DRIVER(cuMemcpyDtoHAsync)(&seen, reinterpret_cast<CUdeviceptr>(pointer), sizeof seen, plain));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(plain));
    EXPECT(seen == 10 * 4 * 64);
    CHECK_DRIVER(DRIVER(cuEventQuery)(event));
    printf("work in it\n");

    // The other way around.
    for (int i = 0; i < 10; i++) {
        CHECK_DRIVER(DRIVER(cuLaunchKernel)(count, 4, 1, 1, 64, 1, 1, 0, plain, arguments, nullptr));
    }
    CHECK_DRIVER(DRIVER(cuEventRecord)(event, plain));
    CHECK_DRIVER(DRIVER(cuGreenCtxWaitEvent)(green, event));
    CHECK_DRIVER(DRIVER(cuMemcpyDtoHAsync)(&seen, reinterpret_cast<CUdeviceptr>(pointer), sizeof seen, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    EXPECT(seen == 2 * 10 * 4 * 64);
    printf("events of it\n");

    // As the current context: streams are of the share, and memory and modules are the primary
    // context's.
    CHECK_DRIVER(DRIVER(cuCtxPushCurrent)(converted));
    unsigned long long id = 0, of_null = 0;
    CHECK_DRIVER(DRIVER(cuGreenCtxGetId)(green, &id));
    CHECK_DRIVER(DRIVER(cuGreenCtxGetId)(nullptr, &of_null));
    EXPECT(id == of_null);
    CUstream inside;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&inside, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(DRIVER(cuStreamGetGreenCtx)(inside, &of));
    EXPECT(of == green);
    CHECK_DRIVER(DRIVER(cuLaunchKernel)(count, 1, 1, 1, 32, 1, 1, 0, inside, arguments, nullptr));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(inside));
    CHECK_DRIVER(DRIVER(cuLaunchKernel)(count, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(nullptr));
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(&seen, reinterpret_cast<CUdeviceptr>(pointer), sizeof seen));
    EXPECT(seen == 2 * 10 * 4 * 64 + 64);
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(inside));
    CHECK_DRIVER(DRIVER(cuCtxPopCurrent)(&context));
    EXPECT(context == converted);
    printf("as the current context\n");

    // Events over all work of the primary context.
    CHECK_DRIVER(DRIVER(cuLaunchKernel)(count, 1, 1, 1, 32, 1, 1, 0, plain, arguments, nullptr));
    CHECK_DRIVER(DRIVER(cuCtxRecordEvent)(primary, event));
    CHECK_DRIVER(DRIVER(cuEventSynchronize)(event));
    CHECK_DRIVER(DRIVER(cuCtxWaitEvent)(primary, event));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(plain));
    EXPECT(total.download()[0] == 2 * 10 * 4 * 64 + 96);
    printf("events of the whole\n");

    CHECK_DRIVER(DRIVER(cuEventDestroy)(event));
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(plain));
    CHECK_DRIVER(DRIVER(cuGreenCtxDestroy)(green));
    // The primary context goes on.
    CHECK_DRIVER(DRIVER(cuLaunchKernel)(count, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK(cudaDeviceSynchronize());
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
    return outcome();
}
