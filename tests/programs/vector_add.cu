// The first CUDA program everyone writes: c = a + b.
#include "check.h"

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}

int main() {
    const int n = 100003;  // not a multiple of the block size
    std::vector<float> a(n), b(n);
    Random random(1);
    for (int i = 0; i < n; i++) {
        a[i] = random.unit();
        b[i] = random.unit();
    }
    DeviceArray<float> da(a), db(b), dc(n);
    vector_add<<<blocks_for(n, 256), 256>>>(da.get(), db.get(), dc.get(), n);
    CHECK(cudaGetLastError());
    std::vector<float> c = dc.download();
    for (int i = 0; i < n; i++) {
        EXPECT(c[i] == a[i] + b[i]);
    }
    printf("vector_add: %d sums right, checksum %016llx\n", n, (unsigned long long)checksum(c));
    return 0;
}
