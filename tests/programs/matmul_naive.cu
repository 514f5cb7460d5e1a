// C = A B, one thread for each element of C, no shared memory.
//
//   matmul_naive [N [ROUNDS]]    with ROUNDS the time of one product goes to standard error
#include "check.h"

#include <chrono>

__global__ void matmul(const float* a, const float* b, float* c, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || column >= n) {
        return;
    }
    float sum = 0;
    for (int k = 0; k < n; k++) {
        sum += a[row * n + k] * b[k * n + column];
    }
    c[row * n + column] = sum;
}

int main(int argc, char** argv) {
    const int n = argc > 1 ? atoi(argv[1]) : 150;
    const int rounds = argc > 2 ? atoi(argv[2]) : 0;
    std::vector<float> a(n * n), b(n * n);
    Random random(3);
    for (int i = 0; i < n * n; i++) {
        // Small integers: every product and partial sum is exact, in any order and with or without
        // fma.
        a[i] = static_cast<float>(random.below(17)) - 8;
        b[i] = static_cast<float>(random.below(17)) - 8;
    }
    DeviceArray<float> da(a), db(b), dc(n * n);
    dim3 threads(16, 16), blocks(blocks_for(n, 16), blocks_for(n, 16));
    matmul<<<blocks, threads>>>(da.get(), db.get(), dc.get(), n);
    CHECK(cudaGetLastError());
    std::vector<float> c = dc.download();

    std::vector<float> wanted(n * n, 0);
    for (int row = 0; row < n; row++) {
        for (int k = 0; k < n; k++) {
            for (int column = 0; column < n; column++) {
                wanted[row * n + column] += a[row * n + k] * b[k * n + column];
            }
        }
    }
    EXPECT(c == wanted);
    printf("matmul_naive: %d x %d right, checksum %016llx\n", n, n, (unsigned long long)checksum(c));

    if (rounds > 0) {
        auto start = std::chrono::steady_clock::now();
        for (int round = 0; round < rounds; round++) {
            matmul<<<blocks, threads>>>(da.get(), db.get(), dc.get(), n);
        }
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        fprintf(stderr, "seconds per product: %.6f\n", taken.count() / rounds);
    }
    return 0;
}
