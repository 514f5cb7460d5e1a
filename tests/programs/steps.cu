// The loops that programs spend their time in, for counting what one step of each waits for and how
// long it takes.
//
//   steps [KIND [STEPS [time]]]    default: all kinds, 3 steps each
//
// train a batch to the device from page-locked memory, 200 launches, events between two streams,
// memsets, a loss to the host infer a small input from pageable memory, 200 launches, a result to
// the host graph a graph of 50 kernels, launched and waited for pool stream-ordered allocations
// from a pool that keeps what is freed, launches into them, frees, a wait blocks the same with
// cudaMalloc and cudaFree upload 64 MiB from pageable memory to the device download 64 MiB from the
// device to pageable memory times 100 launches between events, a wait, and the time of each, as
// programs ask that choose among kernels known a launch and a wait, and what libraries ask again
// and again: limits, occupancy, granularity
#include <string.h>

#include <algorithm>
#include <chrono>

#include "check.h"

__global__ void scale(float* data, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = data[i] * by + 1;
}

const int N = 256;

struct Things {
    cudaStream_t compute, copy;
    cudaEvent_t copied, done;
    cudaGraphExec_t graph;
    float *data, *pinned, *loss;
    static const size_t BATCH = 256 << 10;

    Things() {
        CHECK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&copy, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
        CHECK(cudaMalloc(reinterpret_cast<void**>(&data), BATCH));
        CHECK(cudaMallocHost(reinterpret_cast<void**>(&pinned), BATCH));
        CHECK(cudaMallocHost(reinterpret_cast<void**>(&loss), sizeof(float)));
        memset(pinned, 0, BATCH);
        CHECK(cudaMemset(data, 0, BATCH));
        // As libraries do that live on stream-ordered memory: the pool keeps what is freed, beyond
        // each wait.
        cudaMemPool_t pool;
        unsigned long long all = ~0ull;
        CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
        cudaGraph_t made;
        CHECK(cudaStreamBeginCapture(compute, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < 50; i++) scale<<<1, N, 0, compute>>>(data, N, 0.5f);
        CHECK(cudaStreamEndCapture(compute, &made));
        CHECK(cudaGraphInstantiate(&graph, made, 0));
        CHECK(cudaGraphDestroy(made));
    }
};

void train(Things& t) {
    // The copy of this batch comes behind the work on the one before.
    CHECK(cudaStreamWaitEvent(t.copy, t.done, 0));
    CHECK(cudaMemcpyAsync(t.data, t.pinned, Things::BATCH, cudaMemcpyHostToDevice, t.copy));
    CHECK(cudaEventRecord(t.copied, t.copy));
    CHECK(cudaStreamWaitEvent(t.compute, t.copied, 0));
    for (int i = 0; i < 200; i++) {
        if (i % 20 == 0) CHECK(cudaMemsetAsync(t.data, 0, N * sizeof(float), t.compute));
        scale<<<1, N, 0, t.compute>>>(t.data, N, 0.5f);
        if (i % 50 == 0) {
            CHECK(cudaEventRecord(t.done, t.compute));
            CHECK(cudaStreamWaitEvent(t.copy, t.done, 0));
        }
    }
    CHECK(cudaEventRecord(t.done, t.compute));
    CHECK(cudaMemcpyAsync(t.loss, t.data, sizeof(float), cudaMemcpyDeviceToHost, t.compute));
    CHECK(cudaStreamSynchronize(t.compute));
    EXPECT(*t.loss > 1.9f && *t.loss < 2);
}

void infer(Things& t) {
    float input[N], output[N];
    for (int i = 0; i < N; i++) input[i] = i;
    CHECK(cudaMemcpy(t.data, input, sizeof input, cudaMemcpyHostToDevice));
    for (int i = 0; i < 200; i++) scale<<<1, N>>>(t.data, N, 0.5f);
    CHECK(cudaMemcpy(output, t.data, sizeof output, cudaMemcpyDeviceToHost));
    EXPECT(output[N - 1] > 1.9f && output[N - 1] < 2.1f);
}

void graph(Things& t) {
    CHECK(cudaGraphLaunch(t.graph, t.compute));
    CHECK(cudaStreamSynchronize(t.compute));
}

template <typename Alloc, typename Free>
void allocate(Things& t, Alloc alloc, Free free) {
    float* blocks[10];
    for (int i = 0; i < 10; i++) {
        blocks[i] = alloc(size_t(4096) << (i % 5));
        CHECK(cudaMemsetAsync(blocks[i], 0, N * sizeof(float), t.compute));
        scale<<<1, N, 0, t.compute>>>(blocks[i], N, 1);
    }
    for (float* block : blocks) free(block);
    CHECK(cudaStreamSynchronize(t.compute));
}

void pool(Things& t) {
    auto alloc = [&](size_t bytes) {
        float* block;
        CHECK(cudaMallocAsync(reinterpret_cast<void**>(&block), bytes, t.compute));
        return block;
    };
    allocate(t, alloc, [&](float* block) { CHECK(cudaFreeAsync(block, t.compute)); });
}

void blocks(Things& t) {
    auto alloc = [&](size_t bytes) {
        float* block;
        CHECK(cudaMalloc(reinterpret_cast<void**>(&block), bytes));
        return block;
    };
    allocate(t, alloc, [&](float* block) { CHECK(cudaFree(block)); });
}

// What is copied in one piece, made when it is first needed.
struct Large {
    static const size_t BYTES = 64 << 20;
    std::vector<unsigned char> host;
    unsigned char* device;

    Large() : host(BYTES) {
        CHECK(cudaMalloc(reinterpret_cast<void**>(&device), BYTES));
        CHECK(cudaMemset(device, 1, BYTES));
    }

    static Large& get() {
        static Large* large = new Large;
        return *large;
    }
};

void upload(Things&) {
    Large& large = Large::get();
    CHECK(cudaMemcpy(large.device, large.host.data(), Large::BYTES, cudaMemcpyHostToDevice));
}

void download(Things&) {
    Large& large = Large::get();
    large.host[0] = large.host[Large::BYTES - 1] = 2;
    CHECK(cudaMemcpy(large.host.data(), large.device, Large::BYTES, cudaMemcpyDeviceToHost));
    EXPECT(large.host[0] < 2 && large.host[Large::BYTES - 1] < 2);
}

void times(Things& t) {
    static std::vector<cudaEvent_t> events;
    if (events.empty()) {
        events.resize(200);
        for (cudaEvent_t& event : events) CHECK(cudaEventCreate(&event));
    }
    for (int i = 0; i < 100; i++) {
        CHECK(cudaEventRecord(events[2 * i], t.compute));
        scale<<<1, N, 0, t.compute>>>(t.data, N, 0.5f);
        CHECK(cudaEventRecord(events[2 * i + 1], t.compute));
    }
    CHECK(cudaStreamSynchronize(t.compute));
    for (int i = 0; i < 100; i++) {
        float milliseconds = -1;
        CHECK(cudaEventElapsedTime(&milliseconds, events[2 * i], events[2 * i + 1]));
        EXPECT(milliseconds >= 0 && milliseconds < 60000);
    }
}

void known(Things& t) {
    for (cudaLimit limit : {cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize}) {
        size_t value = 0;
        CHECK(cudaDeviceGetLimit(&value, limit));
        EXPECT(value > 0);
    }
    int blocks = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, N, 0));
    size_t shared = 0;
    CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&shared, scale, 1, N));
    CHECK(cudaEventRecord(t.done, t.compute));
    CHECK(cudaEventSynchronize(t.done));
    scale<<<1, N, 0, t.compute>>>(t.data, N, 0.5f);
    CHECK(cudaStreamSynchronize(t.compute));
}

int main(int argc, char** argv) {
    struct {
        const char* name;
        void (*step)(Things&);
    } kinds[] = {{"train", train}, {"infer", infer},   {"graph", graph},      {"pool", pool},
                 {"blocks", blocks}, {"upload", upload}, {"download", download}, {"times", times}, {"known", known}};
    const char* wanted = argc > 1 ? argv[1] : "all";
    const int steps = argc > 2 ? atoi(argv[2]) : 3;
    const bool timed = argc > 3;
    Things things;
    for (auto& kind : kinds) {
        if (strcmp(wanted, "all") != 0 && strcmp(wanted, kind.name) != 0) continue;
        // The first step loads and finds out; it is not timed.
        kind.step(things);
        CHECK(cudaDeviceSynchronize());
        std::vector<double> taken;
        for (int i = 0; i < steps; i++) {
            const auto start = std::chrono::steady_clock::now();
            kind.step(things);
            taken.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
        }
        if (timed) {
            // The median: others may use the machine, too.
            std::sort(taken.begin(), taken.end());
            printf("%s %.4f\n", kind.name, taken.empty() ? 0.0 : taken[taken.size() / 2]);
        } else {
            printf("%s: %d steps\n", kind.name, steps);
        }
    }
    return 0;
}
