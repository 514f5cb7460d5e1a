// Compiled with --default-stream per-thread: each host thread has a default stream of its own.
#include "check.h"

#include <atomic>
#include <thread>

__global__ void increment(int* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        values[i]++;
    }
}

static std::atomic<int> right{0};

static void run(int seed) {
    const int n = 5000, rounds = 25;
    std::vector<int> values(n), result(n);
    Random random(static_cast<uint64_t>(seed));
    for (int& value : values) value = static_cast<int>(random.below(1000));
    DeviceArray<int> data(values);
    for (int round = 0; round < rounds; round++) {
        increment<<<blocks_for(n, 128), 128>>>(data.get(), n);
    }
    CHECK(cudaMemcpyAsync(result.data(), data.get(), data.bytes(), cudaMemcpyDeviceToHost, cudaStreamPerThread));
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
    for (int i = 0; i < n; i++) EXPECT(result[i] == values[i] + rounds);
    right++;
}

int main() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; i++) threads.emplace_back(run, i);
    for (std::thread& thread : threads) thread.join();
    printf("per_thread_stream: %d of 6 threads right\n", right.load());
    return right == 6 ? 0 : 1;
}
