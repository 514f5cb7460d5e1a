// Handles of what has been destroyed. A native driver follows them and may crash, or say that the
// context is destroyed; ours looks them up, and says so each time.
#include "check.h"
#include "driver.h"

int main() {
    CHECK(cudaFree(nullptr));  // the primary context is there and current
    CUstream stream;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, 0));
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    EXPECT_DRIVER(DRIVER(cuStreamSynchronize)(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_DRIVER(DRIVER(cuStreamQuery)(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_DRIVER(DRIVER(cuStreamDestroy)(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CUevent event;
    CHECK_DRIVER(DRIVER(cuEventCreate)(&event, 0));
    CHECK_DRIVER(DRIVER(cuEventDestroy)(event));
    EXPECT_DRIVER(DRIVER(cuEventQuery)(event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_DRIVER(DRIVER(cuEventRecord)(event, nullptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_DRIVER(DRIVER(cuEventDestroy)(event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(DRIVER(cuDeviceGet)(&device, 0));
    CHECK_DRIVER(DRIVER(cuCtxCreate)(&context, nullptr, 0, device));
    CHECK_DRIVER(DRIVER(cuCtxDestroy)(context));
    EXPECT_DRIVER(DRIVER(cuCtxDestroy)(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    printf("freed_handles: done\n");
    return outcome();
}
