// Shared memory whose size is given at launch: several arrays in one block of it, and more than 48
// KiB by opting in.
#include "check.h"

__global__ void reverse_and_sum(const int* in, int* out, double* sum, int n) {
    extern __shared__ unsigned char memory[];
    double* sums = reinterpret_cast<double*>(memory);
    int* values = reinterpret_cast<int*>(sums + blockDim.x);
    double mine = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        values[i] = in[i];
        mine += in[i];
    }
    sums[threadIdx.x] = mine;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        out[i] = values[n - 1 - i];
    }
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        *sum = sums[0];
    }
}

static void run(int n, int threads) {
    std::vector<int> values(n);
    double wanted = 0;
    Random random(static_cast<uint64_t>(n));
    for (int& value : values) {
        value = static_cast<int>(random.below(1000));
        wanted += value;
    }
    DeviceArray<int> in(values), out(n);
    DeviceArray<double> sum(1);
    size_t bytes = threads * sizeof(double) + n * sizeof(int);
    reverse_and_sum<<<1, threads, bytes>>>(in.get(), out.get(), sum.get(), n);
    CHECK(cudaGetLastError());
    std::vector<int> result = out.download();
    for (int i = 0; i < n; i++) EXPECT(result[i] == values[n - 1 - i]);
    EXPECT(sum.download()[0] == wanted);
    printf("%zu bytes of dynamic shared memory: right\n", bytes);
}

int main() {
    run(100, 32);
    run(5000, 256);
    run(10000, 512);  // 44 KiB

    int most = 0;
    CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    EXPECT(most >= 64 * 1024);
    // More than 48 KiB needs leave.
    reverse_and_sum<<<1, 256, 60 * 1024>>>(nullptr, nullptr, nullptr, 0);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(reverse_and_sum, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024));
    run(14000, 256);  // 57 KiB
    EXPECT_ERROR(cudaFuncSetAttribute(reverse_and_sum, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1),
                 cudaErrorInvalidValue);
    cudaGetLastError();

    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, reverse_and_sum));
    EXPECT(attributes.maxDynamicSharedSizeBytes == 64 * 1024 && attributes.sharedSizeBytes == 0);
    return outcome();
}
