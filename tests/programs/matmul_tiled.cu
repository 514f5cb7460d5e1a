// C = A B with tiles in shared memory, for sizes that do not fill the last tile.
#include "check.h"

constexpr int TILE = 16;

__global__ void matmul(const float* a, const float* b, float* c, int m, int n, int p) {
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE + 1];
    int row = blockIdx.y * TILE + threadIdx.y;
    int column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int start = 0; start < n; start += TILE) {
        int ka = start + threadIdx.x, kb = start + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < m && ka < n ? a[row * n + ka] : 0;
        tile_b[threadIdx.y][threadIdx.x] = kb < n && column < p ? b[kb * p + column] : 0;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; k++) {
            sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < m && column < p) {
        c[row * p + column] = sum;
    }
}

int main() {
    const int m = 130, n = 77, p = 161;
    std::vector<float> a(m * n), b(n * p);
    Random random(4);
    for (float& value : a) value = static_cast<float>(random.below(17)) - 8;
    for (float& value : b) value = static_cast<float>(random.below(17)) - 8;
    DeviceArray<float> da(a), db(b), dc(m * p);
    matmul<<<dim3(blocks_for(p, TILE), blocks_for(m, TILE)), dim3(TILE, TILE)>>>(da.get(), db.get(), dc.get(), m, n, p);
    CHECK(cudaGetLastError());
    std::vector<float> c = dc.download();
    for (int row = 0; row < m; row++) {
        for (int column = 0; column < p; column++) {
            float sum = 0;
            for (int k = 0; k < n; k++) {
                sum += a[row * n + k] * b[k * p + column];
            }
            EXPECT(c[row * p + column] == sum);
        }
    }
    printf("matmul_tiled: %d x %d x %d right, checksum %016llx\n", m, n, p, (unsigned long long)checksum(c));
    return 0;
}
