// Several host threads use the device at once: own streams, own memory, one counter they share.
#include "check.h"

#include <thread>

__global__ void mix(unsigned* values, int n, unsigned round) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        values[i] = values[i] * 2654435761u + round;
    }
}

__global__ void count(unsigned long long* counter) { atomicAdd(counter, 1ull); }

static void run(int index, unsigned long long* counter) {
    const int n = 3000, rounds = 40;
    std::vector<unsigned> values(n);
    for (int i = 0; i < n; i++) values[i] = static_cast<unsigned>(i * 31 + index);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int repeat = 0; repeat < 4; repeat++) {
        DeviceArray<unsigned> data(values);
        // A copy from pageable memory may still be on its way to the device when the call returns,
        // and this stream does not wait for it.
        CHECK(cudaStreamSynchronize(cudaStreamLegacy));
        for (unsigned round = 0; round < rounds; round++) {
            mix<<<blocks_for(n, 256), 256, 0, stream>>>(data.get(), n, round);
            for (unsigned& value : values) value = value * 2654435761u + round;
        }
        count<<<2, 32, 0, stream>>>(counter);
        std::vector<unsigned> result(n);
        CHECK(cudaMemcpyAsync(result.data(), data.get(), data.bytes(), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(result == values);
    }
    CHECK(cudaStreamDestroy(stream));
}

int main() {
    const int threads = 8;
    DeviceArray<unsigned long long> counter(1);
    counter.zero();
    CHECK(cudaDeviceSynchronize());
    std::vector<std::thread> running;
    for (int i = 0; i < threads; i++) running.emplace_back(run, i, counter.get());
    for (std::thread& thread : running) thread.join();
    unsigned long long total = counter.download()[0];
    printf("host_threads: %d threads right, counted %llu\n", threads, total);
    EXPECT(total == threads * 4 * 64);
    // An error belongs to the thread that made it.
    EXPECT(cudaMalloc(nullptr, 1) == cudaErrorInvalidValue);
    cudaError_t seen = cudaErrorUnknown;
    std::thread([&] { seen = cudaPeekAtLastError(); }).join();
    EXPECT(seen == cudaSuccess && cudaGetLastError() == cudaErrorInvalidValue);
    printf("the last error belongs to its thread\n");
    return 0;
}
