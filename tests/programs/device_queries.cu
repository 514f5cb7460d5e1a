// Questions about a device that few programs ask.
#include "check.h"
#include "driver.h"

static void notified(CUasyncNotificationInfo*, void*, CUasyncCallbackHandle) {}

int main() {
    CHECK(cudaFree(nullptr));
    CUdevice device;
    CHECK_DRIVER(DRIVER(cuDeviceGet)(&device, 0));

    CUatomicOperation operations[] = {CU_ATOMIC_OPERATION_INTEGER_ADD, CU_ATOMIC_OPERATION_CAS};
    unsigned capabilities[] = {77, 77};
    CHECK_DRIVER(DRIVER(cuDeviceGetHostAtomicCapabilities)(capabilities, operations, 2, device));
    int native = 0;
    CHECK_DRIVER(DRIVER(cuDeviceGetAttribute)(&native, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, device));
    EXPECT(native != 0 || (capabilities[0] != 77 && capabilities[1] != 77));

    int widest = 0;
    size_t width = 0;
    CHECK_DRIVER(DRIVER(cuDeviceGetAttribute)(&widest, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, device));
    CHECK_DRIVER(DRIVER(cuDeviceGetTexture1DLinearMaxWidth)(&width, CU_AD_FORMAT_FLOAT, 1, device));
    EXPECT(width >= static_cast<size_t>(widest > 0));

    CUasyncCallbackHandle handle = nullptr;
    CUresult registered = DRIVER(cuDeviceRegisterAsyncNotification)(device, notified, nullptr, &handle);
    // Only some systems have notifications to give.
    EXPECT(registered == CUDA_SUCCESS || registered == CUDA_ERROR_NOT_SUPPORTED);
    if (registered == CUDA_SUCCESS) CHECK_DRIVER(DRIVER(cuDeviceUnregisterAsyncNotification)(device, handle));

    int options = 0, supported = 0;
    CHECK_DRIVER(
        DRIVER(cuDeviceGetAttribute)(&options, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, device));
    CUresult flushed = DRIVER(cuFlushGPUDirectRDMAWrites)(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                                          CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
    EXPECT(flushed == ((options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED));
    CHECK_DRIVER(DRIVER(cuDeviceGetExecAffinitySupport)(&supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, device));
    char luid[8];
    unsigned mask = 0;
    EXPECT_DRIVER(DRIVER(cuDeviceGetLuid)(luid, &mask, device), CUDA_ERROR_NOT_SUPPORTED);
    printf("answered\n");
    return outcome();
}
