// What variables of the environment change that are NVIDIA's driver's: whether a launch waits for
// its kernel, how modules are loaded, and where errors are told of.
#include "check.h"
#include "driver.h"

__global__ void fill_late(int* place, long long clocks) {
    const long long begin = clock64();
    while (clock64() - begin < clocks) {
    }
    *place = 7;
}

__global__ void store(int* place) { *place = 1; }

int main() {
    CHECK_DRIVER(DRIVER(cuInit)(0));
    CUmoduleLoadingMode mode;
    CHECK_DRIVER(DRIVER(cuModuleGetLoadingMode)(&mode));
    printf("modules are loaded %s\n", mode == CU_MODULE_EAGER_LOADING ? "eagerly" : "lazily");

    int* place;
    CHECK(cudaMallocHost(&place, sizeof *place));
    *place = 0;
    fill_late<<<1, 1>>>(place, 500 * 1000 * 1000);
    CHECK(cudaGetLastError());
    printf("a launch returns %s the kernel is done\n", *static_cast<volatile int*>(place) == 7 ? "when" : "before");
    CHECK(cudaDeviceSynchronize());
    EXPECT(*place == 7);

    void* none;
    EXPECT_DRIVER(DRIVER(cuMemFree)(0x1234567000), CUDA_ERROR_INVALID_VALUE);
    EXPECT_ERROR(cudaMalloc(&none, size_t(1) << 60), cudaErrorMemoryAllocation);
    cudaGetLastError();

    store<<<1, 1>>>(reinterpret_cast<int*>(16));
    printf("a faulty launch gives %s\n", cudaGetErrorName(cudaGetLastError()));
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    return outcome();
}
