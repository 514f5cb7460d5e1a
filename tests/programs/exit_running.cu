// Ends in main, with work still running, memory and streams alive, and static objects that call
// CUDA when destroyed.
#include "check.h"
#include "work.h"

// Programs do this, though the runtime may be gone by then: an error is allowed, a crash or a hang
// is not.
struct FreesLate {
    void* memory = nullptr;
    ~FreesLate() {
        cudaFree(memory);
        cudaDeviceSynchronize();
    }
};

static FreesLate frees_late;

int main() {
    unsigned* state = nullptr;
    CHECK(cudaMalloc(&frees_late.memory, 1 << 20));
    CHECK(cudaMalloc(&state, sizeof(unsigned)));
    CHECK(cudaMemset(state, 0, sizeof(unsigned)));
    cudaStream_t streams[4];
    for (cudaStream_t& stream : streams) {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        work<<<1, 1, 0, stream>>>(state, 50000000);
    }
    printf("leaving with work running\n");
    return 0;
}
