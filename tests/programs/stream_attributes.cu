// Attributes of streams: what is set is what is read, and one stream can be given those of another.
#include <cstring>

#include "driver.h"

static CUstreamAttrValue get(CUstream stream, CUstreamAttrID attribute) {
    CUstreamAttrValue value;
    memset(&value, 0xff, sizeof(value));
    CHECK_DRIVER(DRIVER(cuStreamGetAttribute)(stream, attribute, &value));
    return value;
}

static void set(CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue& value) {
    CHECK_DRIVER(DRIVER(cuStreamSetAttribute)(stream, attribute, &value));
}

__global__ void add_one(int* value) { ++*value; }

int main() {
    CHECK(cudaFree(nullptr));
    cudaStream_t a, b;
    int least = 0, greatest = 0;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(cudaStreamCreateWithPriority(&a, cudaStreamNonBlocking, least));
    CHECK(cudaStreamCreate(&b));

    CUstreamAttrValue value = {};
    EXPECT(get(a, CU_LAUNCH_ATTRIBUTE_PRIORITY).priority == least);
    value.priority = greatest;
    set(a, CU_LAUNCH_ATTRIBUTE_PRIORITY, value);
    EXPECT(get(a, CU_LAUNCH_ATTRIBUTE_PRIORITY).priority == greatest);
    int priority = 99;
    CHECK(cudaStreamGetPriority(a, &priority));
    EXPECT(priority == greatest);

    value = {};
    value.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
    set(a, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, value);
    EXPECT(get(a, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY).syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC);

    EXPECT(get(a, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW).accessPolicyWindow.num_bytes == 0);
    value = {};
    set(a, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, value);
    EXPECT(get(a, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN).memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT);
    printf("set and read: right\n");

    EXPECT(get(b, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY).syncPolicy != CU_SYNC_POLICY_BLOCKING_SYNC);
    CHECK_DRIVER(DRIVER(cuStreamCopyAttributes)(b, a));
    EXPECT(get(b, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY).syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC);
    printf("copied: right\n");

    DeviceArray<int> data(1);
    data.zero();
    CHECK(cudaDeviceSynchronize());
    add_one<<<1, 1, 0, a>>>(data.get());
    CHECK(cudaStreamSynchronize(a));
    add_one<<<1, 1, 0, b>>>(data.get());
    CHECK(cudaStreamSynchronize(b));
    EXPECT(data.download()[0] == 2);

    // A stream knows its context, and of no green one.
    CUcontext current = nullptr, of = nullptr;
    auto green = reinterpret_cast<CUgreenCtx>(&value);
    CHECK_DRIVER(DRIVER(cuCtxGetCurrent)(&current));
    auto context_of = driver_symbol<CUresult(CUstream, CUcontext*, CUgreenCtx*)>("cuStreamGetCtx_v2");
    for (CUstream stream : {CUstream(a), CUstream(nullptr), CU_STREAM_PER_THREAD}) {
        CHECK_DRIVER(context_of(stream, &of, &green));
        EXPECT(of == current && green == nullptr);
    }

    EXPECT_DRIVER(DRIVER(cuStreamGetAttribute)(a, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value), CUDA_ERROR_INVALID_VALUE);
    value.syncPolicy = static_cast<CUsynchronizationPolicy>(77);
    EXPECT_DRIVER(DRIVER(cuStreamSetAttribute)(a, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value),
                  CUDA_ERROR_INVALID_VALUE);
    CHECK(cudaStreamDestroy(a));
    CHECK(cudaStreamDestroy(b));
    return outcome();
}
