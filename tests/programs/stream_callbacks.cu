// Stream callbacks: called with the stream and a status, after the work before them, and after an
// error too.
#include <atomic>
#include <chrono>
#include <thread>

#include "check.h"

struct Told {
    std::vector<int> order;
    std::vector<cudaStream_t> streams;
    std::vector<cudaError_t> statuses;
    std::atomic<int> count{0};
};

struct Call {
    Told* told;
    int number;
};

static void CUDART_CB callback(cudaStream_t stream, cudaError_t status, void* data) {
    Call* call = static_cast<Call*>(data);
    call->told->order.push_back(call->number);
    call->told->streams.push_back(stream);
    call->told->statuses.push_back(status);
    call->told->count++;
}

__global__ void set(int* data, int value) { *data = value; }

__global__ void say(int number) { printf("device says %d\n", number); }

__global__ void trap() { asm("trap;"); }

static void CUDART_CB say_too(cudaStream_t, cudaError_t status, void* data) {
    printf("callback says %d, %s\n", *static_cast<int*>(data), cudaGetErrorName(status));
}

int main() {
    Told told;
    std::vector<Call> calls;
    for (int i = 0; i < 40; i++) calls.push_back({&told, i});
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    int* value = nullptr;
    CHECK(cudaMallocHost(&value, sizeof(int)));
    DeviceArray<int> data(1);
    for (Call& call : calls) {
        set<<<1, 1, 0, stream>>>(data.get(), call.number);
        CHECK(cudaStreamAddCallback(stream, callback, &call, 0));
    }
    CHECK(cudaMemcpyAsync(value, data.get(), sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(*value == 39 && told.order.size() == calls.size());
    for (int i = 0; i < 40; i++) {
        EXPECT(told.order[i] == i && told.streams[i] == stream && told.statuses[i] == cudaSuccess);
    }
    printf("40 callbacks: in order, with their stream\n");

    // What kernels print is printed before a callback behind them is called.
    int numbers[3] = {0, 1, 2};
    for (int& number : numbers) {
        say<<<1, 1, 0, stream>>>(number);
        CHECK(cudaStreamAddCallback(stream, say_too, &number, 0));
    }
    CHECK(cudaStreamSynchronize(stream));

    EXPECT_ERROR(cudaStreamAddCallback(stream, callback, &calls[0], 1), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaStreamAddCallback(stream, nullptr, nullptr, 0), cudaErrorInvalidValue);

    // After an error it is called with that error, though perhaps not before the wait has returned.
    Told after;
    Call last = {&after, 7};
    trap<<<1, 1, 0, stream>>>();
    cudaError_t added = cudaStreamAddCallback(stream, callback, &last, 0);
    cudaError_t end = cudaStreamSynchronize(stream);
    printf("after a trap: %s\n", cudaGetErrorName(end));
    EXPECT(end == cudaErrorLaunchFailure);
    if (added == cudaSuccess) {
        auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (after.count == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
        EXPECT(after.count == 1 && after.order[0] == 7);
        EXPECT(after.statuses[0] == cudaErrorLaunchFailure);
    }
    fflush(stdout);
    return outcome();
}
