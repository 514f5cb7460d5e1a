// Touches little of much memory, so that a test can tell from the statistics how much was moved for
// it: see tests/e2e/tests/pages.rs.
#include "check.h"

__global__ void strided(char *data, size_t step, int count) {
    int i = threadIdx.x;
    if (i < count) data[i * step + 1] = data[i * step] + 1;
}

__global__ void sum(const int *data, size_t count, unsigned long long *result) {
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) mine += data[i];
    atomicAdd(result, mine);
}

int main() {
    // 64 pages of 256 MiB, ten times.
    const size_t step = 4 << 20;
    const int count = 64;
    char *managed;
    CHECK(cudaMallocManaged(&managed, step * count));
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < count; i++) managed[i * step] = static_cast<char>(i / 2 + round);
        strided<<<1, count>>>(managed, step, count);
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < count; i++) EXPECT(managed[i * step + 1] == static_cast<char>(i / 2 + round + 1));
    }
    CHECK(cudaFree(managed));
    // 32 MiB of page-locked memory that no kernel is given, once each way; 32 MiB of mapped memory
    // of which two pages are used.
    const size_t items = 8 << 20, bytes = items * sizeof(int);
    int *pinned, *mapped, *device;
    unsigned long long *result;
    CHECK(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault));
    CHECK(cudaHostAlloc(&mapped, bytes, cudaHostAllocMapped));
    CHECK(cudaMallocManaged(&result, sizeof *result));
    CHECK(cudaMalloc(&device, bytes));
    *result = 0;
    for (size_t i = 0; i < items; i++) pinned[i] = static_cast<int>(i);
    CHECK(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice));
    sum<<<32, 256>>>(device, items, result);
    CHECK(cudaDeviceSynchronize());
    EXPECT(*result == items * (items - 1ull) / 2);
    CHECK(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost));
    mapped[5] = 6;
    mapped[items - 1] = 7;
    sum<<<32, 256>>>(mapped, items, result);
    CHECK(cudaDeviceSynchronize());
    EXPECT(*result == items * (items - 1ull) / 2 + 13 && pinned[items - 1] == static_cast<int>(items - 1));
    EXPECT(mapped[5] == 6);
    printf("touched: right\n");
    CHECK(cudaFree(device));
    CHECK(cudaFree(result));
    CHECK(cudaFreeHost(mapped));
    CHECK(cudaFreeHost(pinned));
    return outcome();
}
