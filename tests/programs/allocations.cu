// 10,000 live allocations: distinct, aligned, whole, and no burden on a launch. The ratio of launch
// times goes to standard error; with --limit it must stay below 1.1.
#include "check.h"

#include <algorithm>
#include <chrono>
#include <cstring>

__global__ void write_index(unsigned** pointers, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        *pointers[i] = static_cast<unsigned>(i) * 7 + 1;
    }
}

__global__ void nothing(unsigned*) {}

// Seconds for one launch: the best of several batches, as other work on the machine only ever adds.
static double time_of_launch(unsigned* argument) {
    double best = 1e9;
    for (int batch = 0; batch < 15; batch++) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < 400; i++) nothing<<<1, 1>>>(argument);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        best = std::min(best, taken.count() / 400);
    }
    return best;
}

int main(int argc, char** argv) {
    const int n = 10000;
    DeviceArray<unsigned> one(1);
    time_of_launch(one.get());
    double before = time_of_launch(one.get());

    std::vector<unsigned*> pointers(n);
    for (int i = 0; i < n; i++) {
        CHECK(cudaMalloc(&pointers[i], 4 + static_cast<size_t>(i) % 4000));
        EXPECT(reinterpret_cast<uintptr_t>(pointers[i]) % 256 == 0);
    }
    double ratio = time_of_launch(pointers[n / 2]) / before;
    fprintf(stderr, "launch with %d live allocations: %.3f times as long\n", n, ratio);
    if (argc > 1 && strcmp(argv[1], "--limit") == 0) {
        EXPECT(ratio < 1.1);
    }

    std::vector<unsigned*> sorted = pointers;
    std::sort(sorted.begin(), sorted.end());
    EXPECT(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
    DeviceArray<unsigned*> dpointers(pointers);
    write_index<<<blocks_for(n, 256), 256>>>(dpointers.get(), n);
    CHECK(cudaGetLastError());
    for (int i = 0; i < n; i += 97) {
        unsigned value = 0;
        CHECK(cudaMemcpy(&value, pointers[i], sizeof(value), cudaMemcpyDeviceToHost));
        EXPECT(value == static_cast<unsigned>(i) * 7 + 1);
    }
    // Freed in an order other than the one of their making.
    for (int i = 0; i < n; i++) CHECK(cudaFree(pointers[(i * 7919) % n]));
    printf("allocations: %d at once, all right\n", n);
    return 0;
}
