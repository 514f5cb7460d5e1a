//: title = "what kernels print arrives on the client's standard output, in order"
//: software = true
#include "_check.h"

__global__ void speak(int round) {
    if (threadIdx.x == 0) printf("round %d, block %d of %d: %5.2f %s\n", round, blockIdx.x, gridDim.x, round / 4.0, "done");
}

int main() {
    setvbuf(stdout, nullptr, _IONBF, 0);
    for (int round = 0; round < 5; round++) {
        printf("before %d\n", round);
        speak<<<1, 32>>>(round);
        CHECK(cudaDeviceSynchronize());
        printf("after %d\n", round);
    }
}
