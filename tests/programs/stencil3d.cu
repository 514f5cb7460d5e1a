// Heat flow on a 3-D grid: a 7-point stencil in double precision, planes passed along in registers,
// two buffers swapped.
#include "check.h"

#include <utility>

constexpr int NX = 40, NY = 35, NZ = 30;

__host__ __device__ inline int at(int x, int y, int z) { return (z * NY + y) * NX + x; }

__global__ void step(const double* in, double* out, double rate) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= NX - 1 || y >= NY - 1) {
        return;
    }
    double below = in[at(x, y, 0)], here = in[at(x, y, 1)];
    for (int z = 1; z < NZ - 1; z++) {
        double above = in[at(x, y, z + 1)];
        double sides = in[at(x - 1, y, z)] + in[at(x + 1, y, z)] + in[at(x, y - 1, z)] + in[at(x, y + 1, z)];
        // Written with fma in one given order, so that the host gets the same bits.
        out[at(x, y, z)] = fma(rate, fma(-6.0, here, (sides + below) + above), here);
        below = here;
        here = above;
    }
}

int main() {
    const int steps = 20;
    const double rate = 0.1;
    std::vector<double> grid(NX * NY * NZ, 0.0);
    Random random(9);
    for (double& value : grid) value = random.unit();
    DeviceArray<double> a(grid), b(grid);
    double *in = a.get(), *out = b.get();
    for (int i = 0; i < steps; i++) {
        step<<<dim3(blocks_for(NX, 16), blocks_for(NY, 8)), dim3(16, 8)>>>(in, out, rate);
        std::swap(in, out);
    }
    CHECK(cudaGetLastError());
    std::vector<double> result(grid.size());
    CHECK(cudaMemcpy(result.data(), in, result.size() * sizeof(double), cudaMemcpyDeviceToHost));

    std::vector<double> next = grid;
    for (int i = 0; i < steps; i++) {
        for (int z = 1; z < NZ - 1; z++) {
            for (int y = 1; y < NY - 1; y++) {
                for (int x = 1; x < NX - 1; x++) {
                    double here = grid[at(x, y, z)];
                    double sides = grid[at(x - 1, y, z)] + grid[at(x + 1, y, z)] + grid[at(x, y - 1, z)] +
                                   grid[at(x, y + 1, z)];
                    double all = (sides + grid[at(x, y, z - 1)]) + grid[at(x, y, z + 1)];
                    next[at(x, y, z)] = std::fma(rate, std::fma(-6.0, here, all), here);
                }
            }
        }
        grid.swap(next);
    }
    EXPECT(result == grid);
    printf("stencil3d: %d x %d x %d, %d steps, checksum %016llx\n", NX, NY, NZ, steps,
           (unsigned long long)checksum(result));
    return 0;
}
