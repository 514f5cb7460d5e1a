// Launches and waits until something stops it. Says "running" once the first round is done. When a
// call fails, prints its error and how long the failing call took in seconds (to standard error),
// checks that the error stays, and exits with 3. For tests that kill processes.
//
//   endless [MEBIBYTES [functions|copies]] holds that much device memory; each round ends with a
//   slow host function, or with copies from and to memory that is registered
#include "check.h"

#include <chrono>
#include <cstring>
#include <thread>

__global__ void add_one(unsigned* counter) { *counter += 1; }

static std::vector<char> registered;

static int fail(cudaError_t error, double seconds) {
    // Waits for copies of it, which must have come to an end.
    if (!registered.empty()) (void)cudaHostUnregister(registered.data());
    fprintf(stderr, "failed after %.3f s\n", seconds);
    printf("%s\n", cudaGetErrorName(error));
    cudaError_t second = cudaDeviceSynchronize();
    printf("then %s\n", second == error ? "the same" : cudaGetErrorName(second));
    return 3;
}

static void slow(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

int main(int argc, char** argv) {
    size_t mebibytes = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1;
    bool functions = argc > 2 && strcmp(argv[2], "functions") == 0;
    if (argc > 2 && !functions) {
        registered.resize(48 << 20);
        CHECK(cudaHostRegister(registered.data(), registered.size(), cudaHostRegisterDefault));
    }
    DeviceArray<char> held(mebibytes << 20);
    held.zero();
    DeviceArray<unsigned> counter(1);
    counter.zero();
    for (unsigned rounds = 1;; rounds++) {
        for (int i = 0; i < 20; i++) {
            add_one<<<1, 1>>>(counter.get());
        }
        if (functions) {
            // It fails once the server is gone; what follows says how.
            (void)cudaLaunchHostFunc(nullptr, slow, nullptr);
        }
        size_t half = registered.size() / 2;
        for (int i = 0; i < 4 && half > 0; i++) {
            (void)cudaMemcpyAsync(held.get(), registered.data(), half, cudaMemcpyHostToDevice);
            (void)cudaMemcpyAsync(registered.data() + half, held.get(), half, cudaMemcpyDeviceToHost);
        }
        unsigned seen = 0;
        auto start = std::chrono::steady_clock::now();
        cudaError_t result = cudaMemcpy(&seen, counter.get(), sizeof(seen), cudaMemcpyDeviceToHost);
        std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        if (result != cudaSuccess) {
            return fail(result, taken.count());
        }
        EXPECT(seen == rounds * 20);
        if (rounds == 1) {
            printf("running\n");
            fflush(stdout);
        }
    }
}
