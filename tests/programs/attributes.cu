// What a program asks about the device and its kernels before it launches: properties, function
// attributes, occupancy, memory information. Prints only what is the same on every device.
#include "check.h"

#include <cstring>

__global__ void small(int* out) { out[threadIdx.x] = 1; }

__global__ void __launch_bounds__(256, 2) bounded(const float* in, float* out) {
    __shared__ float tile[2048];
    for (int i = threadIdx.x; i < 2048; i += blockDim.x) tile[i] = in[i];
    __syncthreads();
    out[threadIdx.x] = tile[2047 - threadIdx.x];
}

__constant__ double table[50];

__global__ void with_local(int* out, int index) {
    int values[100];
    for (int i = 0; i < 100; i++) values[i] = i * index;
    out[threadIdx.x] = values[(index * 31 + threadIdx.x) % 100] + static_cast<int>(table[index % 50]);
}

int main() {
    int count = 0, runtime = 0, driver = 0;
    CHECK(cudaGetDeviceCount(&count));
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaDriverGetVersion(&driver));
    EXPECT(count >= 1 && driver / 1000 >= runtime / 1000);

    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    EXPECT(strlen(properties.name) > 0 && properties.totalGlobalMem > 0 && properties.warpSize == 32);
    EXPECT(properties.maxThreadsPerBlock == 1024 && properties.maxGridSize[0] == INT32_MAX && properties.major >= 7);
    EXPECT(properties.multiProcessorCount > 0 && properties.sharedMemPerBlock == 48 * 1024);
    EXPECT(properties.unifiedAddressing == 1 && properties.regsPerBlock > 0 && properties.maxThreadsPerMultiProcessor >= 1024);
    int value = 0;
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    EXPECT(value == properties.major);
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    EXPECT(value == properties.multiProcessorCount);
    char bus[32];
    int by_bus = -1;
    CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), 0));
    CHECK(cudaDeviceGetByPCIBusId(&by_bus, bus));
    EXPECT(by_bus == 0);
    int chosen = -1;
    memset(&properties, 0, sizeof(properties));
    CHECK(cudaChooseDevice(&chosen, &properties));
    EXPECT(chosen >= 0 && chosen < count);

    cudaFuncAttributes a;
    CHECK(cudaFuncGetAttributes(&a, small));
    EXPECT(a.sharedSizeBytes == 0 && a.maxThreadsPerBlock == 1024 && a.numRegs > 0 && a.ptxVersion >= 70);
    CHECK(cudaFuncGetAttributes(&a, bounded));
    EXPECT(a.sharedSizeBytes == 2048 * sizeof(float) && a.maxThreadsPerBlock == 256);
    CHECK(cudaFuncGetAttributes(&a, with_local));
    EXPECT(a.localSizeBytes >= 100 * sizeof(int) && a.constSizeBytes >= 50 * sizeof(double));
    CHECK(cudaFuncSetCacheConfig(small, cudaFuncCachePreferL1));

    int blocks = 0, smallest_grid = 0, best_block = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 128, 0));
    EXPECT(blocks >= 8);
    int with_much_shared = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&with_much_shared, small, 128, 40 * 1024));
    EXPECT(with_much_shared >= 1 && with_much_shared < blocks);
    CHECK(cudaOccupancyMaxPotentialBlockSize(&smallest_grid, &best_block, bounded, 0, 0));
    EXPECT(best_block > 0 && best_block <= 256 && smallest_grid > 0);

    // Others may allocate and free on the device in the same moment, so it has to be so once in a
    // number of times.
    bool taken = false, given_back = false;
    for (int attempt = 0; attempt < 50 && !(taken && given_back); attempt++) {
        size_t before = 0, total = 0, during = 0, after = 0;
        CHECK(cudaMemGetInfo(&before, &total));
        EXPECT(total > 0 && before <= total);
        {
            DeviceArray<char> large(64 << 20);
            CHECK(cudaMemGetInfo(&during, &total));
        }
        CHECK(cudaMemGetInfo(&after, &total));
        taken = before >= during + (60 << 20);
        // Blocks of memory may be kept for the next allocation, but not all that was freed.
        given_back = before < after + (60 << 20);
    }
    EXPECT(taken);
    EXPECT(given_back);

    unsigned flags = 99;
    CHECK(cudaGetDeviceFlags(&flags));
    int can = 99;
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 0));
    EXPECT(can == 0);

    DeviceArray<int> out(32);
    with_local<<<1, 32>>>(out.get(), 3);
    CHECK(cudaGetLastError());
    EXPECT(out.download()[1] == (3 * 31 + 1) % 100 * 3);
    printf("attributes: right\n");
    return 0;
}
