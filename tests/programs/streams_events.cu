// Streams run on their own, events order them, and the legacy default stream waits for all and is
// waited for by all.
#include "check.h"
#include "work.h"

__global__ void fill(int* data, int n, int value) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        data[i] = value;
    }
}

__global__ void add(int* to, const int* from, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        to[i] += from[i];
    }
}

// Each link of a chain across three streams depends on the one before by an event.
static void chain_across_streams() {
    const int n = 4096, links = 60;
    DeviceArray<int> sum(n), one(n);
    sum.zero();
    fill<<<4, 128>>>(one.get(), n, 1);
    CHECK(cudaDeviceSynchronize());
    cudaStream_t streams[3];
    cudaEvent_t events[3];
    for (int i = 0; i < 3; i++) {
        CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
    }
    for (int link = 0; link < links; link++) {
        int here = link % 3, before = (link + 2) % 3;
        if (link > 0) {
            CHECK(cudaStreamWaitEvent(streams[here], events[before], 0));
        }
        add<<<4, 128, 0, streams[here]>>>(sum.get(), one.get(), n);
        CHECK(cudaEventRecord(events[here], streams[here]));
    }
    std::vector<int> result(n);
    cudaStream_t last = streams[(links - 1) % 3];
    CHECK(cudaMemcpyAsync(result.data(), sum.get(), sum.bytes(), cudaMemcpyDeviceToHost, last));
    CHECK(cudaStreamSynchronize(last));
    for (int value : result) EXPECT(value == links);
    for (int i = 0; i < 3; i++) {
        CHECK(cudaStreamDestroy(streams[i]));
        CHECK(cudaEventDestroy(events[i]));
    }
    printf("a chain of %d links across 3 streams: right\n", links);
}

// Blocking streams and the legacy default stream take turns without any event.
static void legacy_default_stream() {
    const int n = 1000, rounds = 20;
    DeviceArray<int> data(n), one(n);
    data.zero();
    fill<<<1, 128>>>(one.get(), n, 1);
    cudaStream_t a, b;
    CHECK(cudaStreamCreate(&a));
    CHECK(cudaStreamCreate(&b));
    for (int round = 0; round < rounds; round++) {
        add<<<1, 128, 0, a>>>(data.get(), one.get(), n);
        add<<<1, 128>>>(data.get(), one.get(), n);
        add<<<1, 128, 0, b>>>(data.get(), one.get(), n);
        add<<<1, 128>>>(data.get(), one.get(), n);
    }
    for (int value : data.download()) EXPECT(value == 4 * rounds);
    CHECK(cudaStreamDestroy(a));
    CHECK(cudaStreamDestroy(b));
    printf("legacy default stream in turn with two blocking streams: right\n");
}

// An event is not ready before its stream has got there; time between two events is there and not
// negative.
static void queries_and_times() {
    const int steps = 50000000;
    DeviceArray<unsigned> state(std::vector<unsigned>{1});
    cudaStream_t stream;
    cudaEvent_t start, stop;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    CHECK(cudaEventQuery(start));  // never recorded: complete
    float milliseconds = -1;
    unsigned wanted = 1;
    // On a busy machine this thread may be held up until the work is done; not five times in a row.
    cudaError_t event = cudaSuccess, of_stream = cudaSuccess, elapsed = cudaSuccess;
    for (int attempt = 0; attempt < 5 && elapsed == cudaSuccess; attempt++) {
        CHECK(cudaEventRecord(start, stream));
        work<<<1, 1, 0, stream>>>(state.get(), steps);
        CHECK(cudaEventRecord(stop, stream));
        event = cudaEventQuery(stop);
        of_stream = cudaStreamQuery(stream);
        elapsed = cudaEventElapsedTime(&milliseconds, start, stop);
        CHECK(cudaEventSynchronize(stop));
        for (int i = 0; i < steps; i++) wanted = step(wanted);
    }
    EXPECT_ERROR(event, cudaErrorNotReady);
    EXPECT_ERROR(of_stream, cudaErrorNotReady);
    EXPECT_ERROR(elapsed, cudaErrorNotReady);
    CHECK(cudaGetLastError());  // not being ready is no error to remember
    CHECK(cudaEventQuery(stop));
    CHECK(cudaStreamQuery(stream));
    CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    EXPECT(milliseconds > 0);
    EXPECT(state.download()[0] == wanted);
    cudaEvent_t untimed;
    CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    CHECK(cudaEventRecord(untimed, stream));
    CHECK(cudaEventSynchronize(untimed));
    EXPECT_ERROR(cudaEventElapsedTime(&milliseconds, start, untimed), cudaErrorInvalidResourceHandle);
    CHECK(cudaEventDestroy(untimed));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaStreamDestroy(stream));
    EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    CHECK(cudaGetLastError());
    printf("queries and times: right\n");
}

// A destroyed stream finishes what was in it.
static void destroyed_with_work() {
    const int n = 1 << 16;
    DeviceArray<int> data(n);
    DeviceArray<unsigned> state(std::vector<unsigned>{1});
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    work<<<1, 1, 0, stream>>>(state.get(), 1000000);
    fill<<<4, 128, 0, stream>>>(data.get(), n, 42);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    for (int value : data.download()) EXPECT(value == 42);
    printf("a stream destroyed with work in it: finished\n");
}

static void priorities() {
    int least = 0, greatest = 0;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    EXPECT(greatest <= least);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    int priority = 99;
    unsigned flags = 99;
    CHECK(cudaStreamGetPriority(stream, &priority));
    CHECK(cudaStreamGetFlags(stream, &flags));
    EXPECT(priority == greatest && flags == cudaStreamNonBlocking);
    CHECK(cudaStreamDestroy(stream));
    printf("priorities and flags: right\n");
}

int main() {
    chain_across_streams();
    legacy_default_stream();
    queries_and_times();
    destroyed_with_work();
    priorities();
    return outcome();
}
