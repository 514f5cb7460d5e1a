// Waits whose answer is known, and such as only look like it: work that was queued by another
// thread, in a stream that this one waits for, by a graph; memory that comes back in its stream's
// order. Held streams show whether a wait has waited.
//
//   idle_waits [ROUNDS]    rounds of waits for nothing, default 10
#include "check.h"
#include "driver.h"

#include <chrono>
#include <thread>

__global__ void set(unsigned* out, unsigned value) { *out = value; }

static CUstream release_stream;
static CUdeviceptr flag;
static unsigned* pinned;
static DeviceArray<unsigned>* word;
static unsigned turn;

// Work in a stream that is done some time after `open` has begun: then the word on the host has the
// value.
static void queue_held(CUstream stream, unsigned value) {
    CHECK_DRIVER(DRIVER(cuStreamWaitValue32)(stream, flag, ++turn, CU_STREAM_WAIT_VALUE_GEQ));
    set<<<1, 1, 0, stream>>>(word->get(), value);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(pinned, word->get(), sizeof(unsigned), cudaMemcpyDeviceToHost, stream));
}

static std::thread open() {
    return std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        CHECK_DRIVER(DRIVER(cuStreamWriteValue32)(release_stream, flag, turn, 0));
    });
}

template <typename Wait>
static void expect_waits(const char* what, unsigned value, Wait wait) {
    std::thread opener = open();
    wait();
    unsigned seen = *static_cast<volatile unsigned*>(pinned);
    opener.join();
    CHECK(cudaDeviceSynchronize());
    if (seen != value) printf("%s: %u, not %u\n", what, seen, value);
    EXPECT(seen == value);
    printf("%s\n", what);
}

static void nothing_to_wait_for(unsigned rounds, CUstream stream, cudaEvent_t event) {
    cudaEvent_t first, second;
    CHECK(cudaEventCreate(&first));
    CHECK(cudaEventCreate(&second));
    set<<<1, 1, 0, stream>>>(word->get(), 1);
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < rounds; i++) {
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaStreamSynchronize(nullptr));
        CHECK(cudaStreamQuery(stream));
        CHECK(cudaEventSynchronize(event));
        CHECK(cudaEventQuery(event));
        // An event happens at once where nothing is left to do.
        CHECK(cudaEventRecord(i % 2 ? first : second, stream));
        CHECK(cudaEventSynchronize(i % 2 ? first : second));
        // Stream-ordered memory of a size comes again, and a copy to the host has waited for all
        // before it.
        void* memory;
        CHECK(cudaMallocAsync(&memory, 4096, stream));
        CHECK(cudaFreeAsync(memory, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    float time = -1;
    CHECK(cudaEventRecord(first, stream));
    CHECK(cudaEventRecord(second, stream));
    CHECK(cudaEventSynchronize(second));
    CHECK(cudaEventElapsedTime(&time, first, second));
    EXPECT(time >= 0 && time < 1000);
    CHECK(cudaEventDestroy(first));
    CHECK(cudaEventDestroy(second));
    printf("nothing to wait for\n");
}

static void in_order(CUstream one, CUstream two) {
    CHECK(cudaDeviceSynchronize());
    const size_t count = 1 << 16, bytes = count * sizeof(unsigned);
    unsigned *a, *b, *c;
    std::vector<unsigned> out(count);
    CHECK(cudaMallocAsync(&a, bytes, one));
    CHECK_DRIVER(DRIVER(cuStreamWaitValue32)(one, flag, ++turn, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK(cudaMemsetAsync(a, 0x11, bytes, one));
    CHECK(cudaFreeAsync(a, one));
    // In the same stream behind the fill, in the other one beside it.
    CHECK(cudaMallocAsync(&b, bytes, one));
    CHECK(cudaMemsetAsync(b, 0x22, bytes, one));
    CHECK(cudaMallocAsync(&c, bytes, two));
    CHECK(cudaMemsetAsync(c, 0x33, bytes, two));
    CHECK(cudaStreamSynchronize(two));
    std::thread opener = open();
    CHECK(cudaMemcpyAsync(out.data(), b, bytes, cudaMemcpyDeviceToHost, one));
    CHECK(cudaStreamSynchronize(one));
    for (unsigned value : out) EXPECT(value == 0x22222222);
    CHECK(cudaMemcpyAsync(out.data(), c, bytes, cudaMemcpyDeviceToHost, two));
    CHECK(cudaStreamSynchronize(two));
    for (unsigned value : out) EXPECT(value == 0x33333333);
    opener.join();
    CHECK(cudaFreeAsync(b, one));
    CHECK(cudaFreeAsync(c, two));
    // A stream may go with what was freed in it.
    cudaStream_t passing;
    CHECK(cudaStreamCreate(&passing));
    CHECK(cudaMallocAsync(&a, bytes, passing));
    CHECK(cudaFreeAsync(a, passing));
    CHECK(cudaStreamDestroy(passing));
    CHECK(cudaDeviceSynchronize());
    printf("memory in stream order\n");
}

int main(int argc, char** argv) {
    const unsigned rounds = argc > 1 ? static_cast<unsigned>(atoi(argv[1])) : 10;
    CHECK(cudaFree(nullptr));
    // Otherwise each wait gives back what was freed, and each allocation is new.
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    cudaStream_t apart, joined, release;
    cudaEvent_t event;
    CHECK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
    CHECK(cudaStreamCreate(&joined));
    CHECK(cudaStreamCreateWithFlags(&release, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    release_stream = release;
    DeviceArray<unsigned> flags(1), words(1);
    flags.zero();
    words.zero();
    flag = reinterpret_cast<CUdeviceptr>(flags.get());
    word = &words;
    CHECK(cudaMallocHost(&pinned, sizeof(unsigned)));
    // Kernels are loaded before streams are held.
    set<<<1, 1>>>(word->get(), 0);
    CHECK(cudaDeviceSynchronize());

    nothing_to_wait_for(rounds, apart, event);

    queue_held(apart, 2);
    expect_waits("a stream", 2, [&] { CHECK(cudaStreamSynchronize(apart)); });
    queue_held(apart, 3);
    expect_waits("the context", 3, [&] { CHECK(cudaDeviceSynchronize()); });
    queue_held(nullptr, 4);
    expect_waits("the default stream", 4, [&] { CHECK(cudaStreamSynchronize(nullptr)); });

    // Behind work of the default stream, in a stream that waits for it.
    queue_held(nullptr, 5);
    set<<<1, 1, 0, joined>>>(word->get(), 6);
    CHECK(cudaMemcpyAsync(pinned, word->get(), sizeof(unsigned), cudaMemcpyDeviceToHost, joined));
    expect_waits("a stream behind the default stream", 6, [&] { CHECK(cudaStreamSynchronize(joined)); });

    // An event that was known to have happened, recorded anew: in another stream, and by a graph.
    CHECK(cudaEventRecord(event, apart));
    CHECK(cudaEventSynchronize(event));
    queue_held(joined, 7);
    CHECK(cudaEventRecord(event, joined));
    EXPECT(cudaEventQuery(event) == cudaErrorNotReady);
    expect_waits("an event recorded anew", 7, [&] { CHECK(cudaEventSynchronize(event)); });
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddEventRecordNode(&node, graph, nullptr, 0, event));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, apart));
    CHECK(cudaEventSynchronize(event));
    queue_held(apart, 8);
    CHECK(cudaGraphLaunch(exec, apart));
    expect_waits("an event recorded by a graph", 8, [&] { CHECK(cudaEventSynchronize(event)); });

    // What another thread has queued.
    CHECK(cudaStreamSynchronize(apart));
    std::thread([&] { queue_held(apart, 9); }).join();
    expect_waits("work of another thread", 9, [&] { CHECK(cudaStreamSynchronize(apart)); });


    in_order(apart, joined);

    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaDeviceSynchronize());
    return 0;
}
