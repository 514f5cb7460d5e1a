// Takes memory until there is none, twice; in between it gives all back, and computes. What is
// refused leaves everything as it was.
#include "check.h"

#include <vector>

__global__ void fill(unsigned* data, size_t count) {
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) {
        data[i] = static_cast<unsigned>(i) * 3;
    }
}

static void compute() {
    std::vector<unsigned> host(5000);
    DeviceArray<unsigned> data(host.size());
    fill<<<1, 64>>>(data.get(), host.size());
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host.data(), data.get(), host.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < host.size(); i++) {
        EXPECT(host[i] == i * 3);
    }
}

int main() {
    compute();
    for (int round = 0; round < 2; round++) {
        size_t available = 0, total = 0;
        CHECK(cudaMemGetInfo(&available, &total));
        size_t piece = total / 16;
        std::vector<void*> taken;
        cudaError_t result = cudaSuccess;
        while (taken.size() < 20) {
            void* memory = nullptr;
            result = cudaMalloc(&memory, piece);
            if (result != cudaSuccess) {
                break;
            }
            taken.push_back(memory);
        }
        EXPECT(result == cudaErrorMemoryAllocation);
        // That was no error that stays.
        EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
        CHECK(cudaDeviceSynchronize());
        for (void* memory : taken) {
            CHECK(cudaFree(memory));
        }
        compute();
    }
    printf("out of memory, and back\n");
    return 0;
}
