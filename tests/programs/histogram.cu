// A histogram of bytes: atomics in shared memory within each block, then atomics in global memory.
#include "check.h"

__global__ void histogram(const unsigned char* data, int n, unsigned* bins) {
    __shared__ unsigned local[256];
    for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) {
        local[bin] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&local[data[i]], 1);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) {
        atomicAdd(&bins[bin], local[bin]);
    }
}

int main() {
    const int n = 500009;
    std::vector<unsigned char> data(n);
    std::vector<unsigned> wanted(256, 0);
    Random random(7);
    for (unsigned char& byte : data) {
        byte = static_cast<unsigned char>((random.below(256) + random.below(256)) / 2);
        wanted[byte]++;
    }
    DeviceArray<unsigned char> ddata(data);
    DeviceArray<unsigned> dbins(256);
    dbins.zero();
    histogram<<<40, 192>>>(ddata.get(), n, dbins.get());
    CHECK(cudaGetLastError());
    std::vector<unsigned> bins = dbins.download();
    EXPECT(bins == wanted);
    for (int bin = 0; bin < 256; bin += 32) {
        printf("bin %3d: %u\n", bin, bins[bin]);
    }
    printf("histogram: checksum %016llx\n", (unsigned long long)checksum(bins));
    return 0;
}
