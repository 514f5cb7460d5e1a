// Copies, launches and copies back, checking every number, until the file END exists; then says how many rounds there were. Says "running" once the
// first round is done. With a second argument, launches alone come first, until the file BEGIN exists: no memory is allocated before.
// For tests of what a program does not notice.
//
//   steady END [BEGIN]
#include "check.h"

#include <chrono>
#include <thread>
#include <unistd.h>
#include <vector>

__global__ void nothing() {}

__global__ void add(unsigned* data, size_t count, unsigned what) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        data[i] += what;
    }
}

static bool exists(const char* path) { return access(path, F_OK) == 0; }

static void pause_briefly() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

// One round over `count` numbers: what comes back is what went there, and `what` more.
static void go_round(unsigned* device, std::vector<unsigned>& host, unsigned round) {
    size_t bytes = host.size() * sizeof(unsigned);
    for (size_t i = 0; i < host.size(); i++) {
        host[i] = static_cast<unsigned>(i * 2654435761u) ^ round;
    }
    CHECK(cudaMemcpy(device, host.data(), bytes, cudaMemcpyHostToDevice));
    for (unsigned i = 1; i <= 8; i++) {
        add<<<4, 64>>>(device, host.size(), i);
    }
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < host.size(); i++) {
        EXPECT(host[i] == (static_cast<unsigned>(i * 2654435761u) ^ round) + 36);
    }
}

int main(int argc, char** argv) {
    EXPECT(argc > 1);
    const char* end = argv[1];
    if (argc > 2) {
        for (bool first = true; !exists(argv[2]); first = false) {
            nothing<<<1, 1>>>();
            CHECK(cudaDeviceSynchronize());
            if (first) {
                printf("waiting\n");
                fflush(stdout);
            }
            pause_briefly();
        }
    }
    // Some of it travels in messages, some on lanes.
    std::vector<unsigned> small(1000), large(200000);
    DeviceArray<unsigned> kept(large.size());
    unsigned round = 0;
    do {
        go_round(kept.get(), small, round);
        go_round(kept.get(), large, round);
        DeviceArray<unsigned> fresh(large.size() / 2 + round % 64);
        fresh.zero();
        go_round(fresh.get(), small, round);
        if (round++ == 0) {
            printf("running\n");
            fflush(stdout);
        }
    } while (!exists(end));
    printf("%u rounds\n", round);
    return 0;
}
