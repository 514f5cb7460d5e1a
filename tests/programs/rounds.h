// Work whose every number is checked, again and again.
#pragma once

#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "check.h"

__global__ void add(unsigned* data, size_t count, unsigned what) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        data[i] += what;
    }
}

static bool exists(const char* path) { return access(path, F_OK) == 0; }

static void pause_briefly() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

// One round over as many numbers as `host` has: what comes back is what went there, and 36 more.
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
