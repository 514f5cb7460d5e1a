// Memory, a stream and an event of one device, and numbers that say who wrote them.
#pragma once

#include "check.h"

static __global__ void put(unsigned* out, size_t count, unsigned seed) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < count) out[i] = unsigned(i) * 3 + seed;
}

static __global__ void add(unsigned* out, size_t count, unsigned value) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < count) out[i] += value;
}

struct Place {
    int device;
    size_t count;
    unsigned* memory;
    cudaStream_t stream;
    cudaEvent_t event;

    // With `cudaStreamDefault`, the stream is in step with the default stream.
    Place(int device, size_t count, unsigned stream_flags = cudaStreamNonBlocking) : device(device), count(count) {
        use();
        CHECK(cudaMalloc(&memory, bytes()));
        CHECK(cudaMemset(memory, 0, bytes()));
        CHECK(cudaStreamCreateWithFlags(&stream, stream_flags));
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        CHECK(cudaDeviceSynchronize());
    }
    Place(const Place&) = delete;
    void release() {
        use();
        CHECK(cudaFree(memory));
        CHECK(cudaStreamDestroy(stream));
        CHECK(cudaEventDestroy(event));
    }
    size_t bytes() const { return count * sizeof(unsigned); }
    unsigned blocks() const { return blocks_for(count, 256); }
    void use() const { CHECK(cudaSetDevice(device)); }
    void fill(unsigned seed) { fill(memory, seed); }
    void fill(unsigned* where, unsigned seed) {
        use();
        put<<<blocks(), 256, 0, stream>>>(where, count, seed);
        CHECK(cudaGetLastError());
    }
    void raise(unsigned value) { raise(memory, value); }
    void raise(unsigned* where, unsigned value) {
        use();
        add<<<blocks(), 256, 0, stream>>>(where, count, value);
        CHECK(cudaGetLastError());
    }
    void copy_from(const Place& from, cudaStream_t stream) {
        CHECK(cudaMemcpyPeerAsync(memory, device, from.memory, from.device, bytes(), stream));
    }
    void record() {
        use();
        CHECK(cudaEventRecord(event, stream));
    }
    void wait_for(const Place& other) {
        use();
        CHECK(cudaStreamWaitEvent(stream, other.event, 0));
    }
    void finish() {
        use();
        CHECK(cudaStreamSynchronize(stream));
    }
    void expect(unsigned seed) { expect(memory, seed); }
    void expect(const unsigned* where, unsigned seed) {
        use();
        std::vector<unsigned> values(count);
        CHECK(cudaMemcpyAsync(values.data(), where, bytes(), cudaMemcpyDefault, stream));
        finish();
        for (size_t i = 0; i < count; i++) {
            if (values[i] == unsigned(i) * 3 + seed) continue;
            printf("device %d: value %zu is %u, not %u\n", device, i, values[i], unsigned(i) * 3 + seed);
            exit(1);
        }
    }
};

// One that is released with its scope.
struct OwnedPlace : Place {
    using Place::Place;
    ~OwnedPlace() { release(); }
};
