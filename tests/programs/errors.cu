// Wrong calls give their error from that very call, and the last error is kept as CUDA says.
#include "check.h"
#include "driver.h"

__global__ void store(int* out) { *out = static_cast<int>(threadIdx.x); }

__global__ void with_shared(int* out) {
    __shared__ int values[10000];
    values[threadIdx.x] = *out;
    __syncthreads();
    *out = values[31 - threadIdx.x];
}

__global__ void __launch_bounds__(128) bounded(int* out) { *out = 1; }

static cudaError_t launch(dim3 blocks, dim3 threads, size_t shared, cudaStream_t stream, int* out) {
    store<<<blocks, threads, shared, stream>>>(out);
    return cudaGetLastError();
}

// A shape that no device can launch. The driver calls that an invalid value; the runtime may call
// it a configuration.
#define EXPECT_BAD_SHAPE(call) EXPECT_EITHER(call, cudaErrorInvalidConfiguration, cudaErrorInvalidValue)

static void launches(int* out) {
    EXPECT_BAD_SHAPE(launch(0, 32, 0, 0, out));
    EXPECT_BAD_SHAPE(launch(1, 0, 0, 0, out));
    EXPECT_BAD_SHAPE(launch(1, 2048, 0, 0, out));
    EXPECT_BAD_SHAPE(launch(1, dim3(32, 32, 2), 0, 0, out));
    EXPECT_BAD_SHAPE(launch(1, dim3(1, 1, 65), 0, 0, out));
    EXPECT_BAD_SHAPE(launch(dim3(1, 65536), 1, 0, 0, out));
    EXPECT_ERROR(launch(1, 32, 1 << 20, 0, out), cudaErrorInvalidValue);
    with_shared<<<1, 32, 40000>>>(out);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidValue);
    bounded<<<1, 256>>>(out);
    EXPECT_EITHER(cudaGetLastError(), cudaErrorInvalidValue, cudaErrorLaunchOutOfResources);
    CHECK(launch(1, 1024, 0, 0, out));
    CHECK(cudaDeviceSynchronize());
}

static void handles(int* out) {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamDestroy(stream));
    EXPECT_ERROR(cudaEventSynchronize(nullptr), cudaErrorInvalidResourceHandle);
    EXPECT_ERROR(cudaEventDestroy(nullptr), cudaErrorInvalidResourceHandle);
    EXPECT_ERROR(cudaEventRecord(nullptr, nullptr), cudaErrorInvalidResourceHandle);
    EXPECT_ERROR(cudaStreamCreate(nullptr), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaEventCreate(nullptr), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
    cudaGetLastError();
    CHECK(launch(1, 1, 0, 0, out));
}

static void memory(int* out) {
    void* pointer = nullptr;
    EXPECT_ERROR(cudaMalloc(nullptr, 16), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaMalloc(&pointer, SIZE_MAX / 4), cudaErrorMemoryAllocation);
    EXPECT(pointer == nullptr);
    CHECK(cudaMalloc(&pointer, 0));
    EXPECT(pointer == nullptr);
    CHECK(cudaFree(nullptr));
    CHECK(cudaMalloc(&pointer, 1000));
    CHECK(cudaFree(pointer));
    EXPECT_ERROR(cudaFree(pointer), cudaErrorInvalidValue);
    int on_host = 0;
    EXPECT_ERROR(cudaFree(&on_host), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaMemcpy(nullptr, out, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaMemcpy(&on_host, out, 4, static_cast<cudaMemcpyKind>(17)), cudaErrorInvalidMemcpyDirection);
    EXPECT_ERROR(cudaMemset(nullptr, 0, 4), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaMemcpy(&on_host, out, size_t(1) << 40, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    CHECK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDeviceToHost));
    cudaGetLastError();
}

static void devices() {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    EXPECT_ERROR(cudaSetDevice(count), cudaErrorInvalidDevice);
    EXPECT_ERROR(cudaSetDevice(-1), cudaErrorInvalidDevice);
    int value = 0;
    EXPECT_ERROR(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(9999), 0), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, count), cudaErrorInvalidDevice);
    cudaGetLastError();
}

// The same wrong handles given to the driver itself.
static void driver_handles(int* out) {
    CHECK(cudaFree(nullptr));  // the primary context is there and current
    CUdeviceptr null_pointer = 0;
    EXPECT_DRIVER(DRIVER(cuEventSynchronize)(nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_DRIVER(DRIVER(cuEventQuery)(nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_DRIVER(DRIVER(cuEventRecord)(nullptr, nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_DRIVER(DRIVER(cuStreamWaitEvent)(nullptr, nullptr, 0), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_DRIVER(DRIVER(cuModuleUnload)(nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_DRIVER(DRIVER(cuMemFree)(null_pointer), CUDA_SUCCESS);
    EXPECT_DRIVER(DRIVER(cuMemFree)(reinterpret_cast<CUdeviceptr>(out) + 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemAlloc)(&null_pointer, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemcpyHtoD)(0, out, 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuStreamCreate)(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    CUstream stream;
    EXPECT_DRIVER(DRIVER(cuStreamCreate)(&stream, 0x80), CUDA_ERROR_INVALID_VALUE);
}

int main() {
    DeviceArray<int> out(4);
    launches(out.get());
    handles(out.get());
    memory(out.get());
    devices();
    driver_handles(out.get());

    // Peeking leaves the last error, getting takes it, a success does not clear it.
    EXPECT(launch(0, 1, 0, 0, out.get()) != cudaSuccess);
    EXPECT(cudaGetLastError() == cudaSuccess);
    EXPECT(cudaMalloc(nullptr, 1) == cudaErrorInvalidValue);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaSuccess);

    // The device is as usable as before.
    CHECK(launch(1, 64, 0, 0, out.get()));
    CHECK(cudaDeviceSynchronize());
    printf("errors: done\n");
    return outcome();
}
