// Sum and maximum of an array: warps reduce with shuffles, a block through shared memory, the grid
// by a second launch.
#include "check.h"

struct Partial {
    unsigned long long sum;
    int maximum;
};

__device__ Partial combine(Partial a, Partial b) { return {a.sum + b.sum, max(a.maximum, b.maximum)}; }

__device__ Partial reduce_warp(Partial value) {
    for (int distance = 16; distance > 0; distance /= 2) {
        Partial other = {__shfl_down_sync(0xffffffffu, value.sum, distance),
                         __shfl_down_sync(0xffffffffu, value.maximum, distance)};
        value = combine(value, other);
    }
    return value;
}

__device__ Partial reduce_block(Partial value) {
    __shared__ Partial warps[32];
    const Partial none = {0, INT32_MIN};
    value = reduce_warp(value);
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = value;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : none;
        value = reduce_warp(value);
    }
    return value;
}

__global__ void reduce_values(const int* values, int n, Partial* partials) {
    Partial mine = {0, INT32_MIN};
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        mine = combine(mine, {static_cast<unsigned long long>(values[i]), values[i]});
    }
    mine = reduce_block(mine);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = mine;
    }
}

__global__ void reduce_partials(Partial* partials, int n) {
    Partial mine = {0, INT32_MIN};
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        mine = combine(mine, partials[i]);
    }
    mine = reduce_block(mine);
    if (threadIdx.x == 0) {
        partials[0] = mine;
    }
}

// The butterfly form: every lane ends with the sum of its warp, without any shared memory.
__global__ void sum_by_butterfly(const float* values, float* sums) {
    float sum = values[blockIdx.x * blockDim.x + threadIdx.x];
    for (int mask = 1; mask < 32; mask *= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    }
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

int main() {
    const int n = 300007, blocks = 48;
    std::vector<int> values(n);
    Random random(5);
    unsigned long long sum = 0;
    int maximum = INT32_MIN;
    for (int& value : values) {
        value = static_cast<int>(random.below(2000001)) - 1000000;
        sum += static_cast<unsigned long long>(value);
        maximum = std::max(maximum, value);
    }
    DeviceArray<int> dvalues(values);
    DeviceArray<Partial> dpartials(blocks);
    for (int threads : {32, 96, 256, 1024}) {
        reduce_values<<<blocks, threads>>>(dvalues.get(), n, dpartials.get());
        reduce_partials<<<1, 64>>>(dpartials.get(), blocks);
        CHECK(cudaGetLastError());
        Partial result = dpartials.download()[0];
        EXPECT(result.sum == sum && result.maximum == maximum);
        printf("reduction with %d threads: sum %lld, maximum %d\n", threads, (long long)result.sum, result.maximum);
    }

    std::vector<float> small(128);
    for (int i = 0; i < 128; i++) small[i] = static_cast<float>(i);
    DeviceArray<float> dsmall(small), dsums(128);
    sum_by_butterfly<<<2, 64>>>(dsmall.get(), dsums.get());
    std::vector<float> sums = dsums.download();
    for (int i = 0; i < 128; i++) {
        float warp = static_cast<float>(i / 32);
        EXPECT(sums[i] == 32 * 32 * warp + 496);
    }
    printf("butterfly sums right\n");
    return 0;
}
