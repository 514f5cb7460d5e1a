// y = a x + y with a grid-stride loop; the product and the sum are rounded once (fma).
#include "check.h"

__global__ void saxpy(int n, float a, const float* x, float* y) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        y[i] = fmaf(a, x[i], y[i]);
    }
}

int main() {
    const int n = 1 << 18;
    const float a = 2.71828f;
    std::vector<float> x(n), y(n);
    Random random(2);
    for (int i = 0; i < n; i++) {
        x[i] = random.unit() - 0.5f;
        y[i] = random.unit() - 0.5f;
    }
    DeviceArray<float> dx(x), dy(y);
    for (int round = 0; round < 3; round++) {
        saxpy<<<64, 128>>>(n, a, dx.get(), dy.get());
        CHECK(cudaGetLastError());
        for (int i = 0; i < n; i++) {
            y[i] = std::fmaf(a, x[i], y[i]);
        }
    }
    std::vector<float> result = dy.download();
    for (int i = 0; i < n; i++) {
        EXPECT(result[i] == y[i]);
    }
    printf("saxpy: %d elements right after 3 rounds, checksum %016llx\n", n, (unsigned long long)checksum(result));
    return 0;
}
