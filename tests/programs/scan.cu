// Inclusive prefix sums: Hillis-Steele in shared memory within a block, then the sums of the
// blocks, then added back.
#include "check.h"

constexpr int BLOCK = 256;

__global__ void scan_blocks(const unsigned* in, unsigned* out, unsigned* block_sums, int n) {
    __shared__ unsigned buffer[2][BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    int current = 0;
    buffer[0][threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int distance = 1; distance < BLOCK; distance *= 2) {
        unsigned value = buffer[current][threadIdx.x];
        if (threadIdx.x >= distance) {
            value += buffer[current][threadIdx.x - distance];
        }
        current = 1 - current;
        buffer[current][threadIdx.x] = value;
        __syncthreads();
    }
    if (i < n) {
        out[i] = buffer[current][threadIdx.x];
    }
    if (block_sums != nullptr && threadIdx.x == BLOCK - 1) {
        block_sums[blockIdx.x] = buffer[current][BLOCK - 1];
    }
}

__global__ void add_offsets(unsigned* values, const unsigned* scanned_sums, int n) {
    int i = (blockIdx.x + 1) * BLOCK + threadIdx.x;
    if (i < n) {
        values[i] += scanned_sums[blockIdx.x];
    }
}

void scan(const unsigned* in, unsigned* out, int n) {
    int blocks = static_cast<int>(blocks_for(n, BLOCK));
    if (blocks == 1) {
        scan_blocks<<<1, BLOCK>>>(in, out, nullptr, n);
        return;
    }
    DeviceArray<unsigned> sums(blocks), scanned(blocks);
    scan_blocks<<<blocks, BLOCK>>>(in, out, sums.get(), n);
    scan(sums.get(), scanned.get(), blocks);
    add_offsets<<<blocks - 1, BLOCK>>>(out, scanned.get(), n);
    CHECK(cudaGetLastError());
}

int main() {
    Random random(6);
    for (int n : {1, 255, 256, 257, 70001}) {
        std::vector<unsigned> values(n), wanted(n);
        unsigned sum = 0;
        for (int i = 0; i < n; i++) {
            values[i] = random.below(1u << 20);
            wanted[i] = sum += values[i];
        }
        DeviceArray<unsigned> in(values), out(n);
        scan(in.get(), out.get(), n);
        std::vector<unsigned> result = out.download();
        EXPECT(result == wanted);
        printf("scan of %d: last %u, checksum %016llx\n", n, result[n - 1], (unsigned long long)checksum(result));
    }
    return 0;
}
