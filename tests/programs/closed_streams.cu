// A program that has closed its standard streams, as services do, and writes to them all the same:
// what it writes is lost, and nothing else is.
#include "check.h"

__global__ void fill(int* out, int round) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 3 * i + round;
}

int main() {
    constexpr int COUNT = 4096;
    for (int number = 0; number < 3; number++) close(number);
    int *out, *pinned;
    CHECK(cudaMalloc(&out, COUNT * sizeof(int)));
    CHECK(cudaMallocHost(&pinned, 1 << 20));
    std::vector<int> back(COUNT);
    for (int round = 0; round < 20; round++) {
        fill<<<COUNT / 256, 256>>>(out, round);
        for (int number = 0; number < 3; number++) {
            ssize_t written = write(number, "some text\n", 10);
            (void)written;
        }
        CHECK(cudaMemcpy(back.data(), out, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(pinned, out, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++) EXPECT(back[i] == 3 * i + round && pinned[i] == back[i]);
    }
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(out));
    return 0;
}
