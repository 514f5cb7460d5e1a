// Stream capture: what is queued becomes a graph, in one stream and in several that events join;
// and replays of it.
#include "graphs.h"

static void one_stream() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    DeviceArray<int> data(COUNT), copy(COUNT);
    data.zero();
    CHECK(cudaDeviceSynchronize());
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == cudaStreamCaptureStatusNone);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == cudaStreamCaptureStatusActive);
    CHECK(cudaMemsetAsync(data.get(), 0, data.bytes(), stream));
    add<<<BLOCKS, 128, 0, stream>>>(data.get(), COUNT, 3);
    multiply<<<BLOCKS, 128, 0, stream>>>(data.get(), COUNT, 5);
    CHECK(cudaMemcpyAsync(copy.get(), data.get(), data.bytes(), cudaMemcpyDeviceToDevice, stream));
    add<<<BLOCKS, 128, 0, stream>>>(copy.get(), COUNT, 1);
    CHECK(cudaGetLastError());
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == cudaStreamCaptureStatusNone);
    size_t nodes = 0, edges = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    printf("one stream: %zu nodes, %zu edges\n", nodes, edges);
    // Nothing has run yet.
    EXPECT(all(data.download(), 0));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (int round = 0; round < 3; round++) {
        CHECK(cudaMemsetAsync(copy.get(), 0xff, copy.bytes(), stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(all(data.download(), 15) && all(copy.download(), 16));
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaStreamDestroy(stream));
}

// Work forked to a second stream and joined again.
static void fork_and_join() {
    cudaStream_t first, second;
    CHECK(cudaStreamCreate(&first));
    CHECK(cudaStreamCreate(&second));
    cudaEvent_t forked, joined;
    CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    DeviceArray<int> a(COUNT), b(COUNT), out(COUNT);
    a.zero();
    b.zero();
    out.zero();
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(forked, first));
    CHECK(cudaStreamWaitEvent(second, forked, 0));
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(second, &status));
    EXPECT(status == cudaStreamCaptureStatusActive);
    add<<<BLOCKS, 128, 0, first>>>(a.get(), COUNT, 1);
    add<<<BLOCKS, 128, 0, second>>>(b.get(), COUNT, 10);
    multiply<<<BLOCKS, 128, 0, second>>>(b.get(), COUNT, 2);
    CHECK(cudaEventRecord(joined, second));
    CHECK(cudaStreamWaitEvent(first, joined, 0));
    sum_of<<<BLOCKS, 128, 0, first>>>(out.get(), a.get(), b.get(), COUNT);
    unsigned long long id_first = 0, id_second = 1;
    CHECK(cudaStreamGetCaptureInfo(first, &status, &id_first));
    CHECK(cudaStreamGetCaptureInfo(second, &status, &id_second));
    EXPECT(id_first == id_second);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(first, &graph));
    CHECK(cudaStreamIsCapturing(second, &status));
    EXPECT(status == cudaStreamCaptureStatusNone);
    size_t nodes = 0, edges = 0, roots = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
    printf("fork and join: %zu nodes, %zu edges, %zu roots\n", nodes, edges, roots);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphUpload(exec, first));
    int wanted_b = 0;
    for (int round = 1; round <= 5; round++) {
        CHECK(cudaGraphLaunch(exec, first));
        wanted_b = (wanted_b + 10) * 2;
        CHECK(cudaStreamSynchronize(first));
        EXPECT(all(out.download(), round + wanted_b));
    }
    // The events are ordinary ones again once they are recorded outside.
    CHECK(cudaEventRecord(forked, first));
    CHECK(cudaEventSynchronize(forked));
    CHECK(cudaStreamWaitEvent(second, forked, 0));
    CHECK(cudaStreamSynchronize(second));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(forked));
    CHECK(cudaEventDestroy(joined));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

// Other streams work on while one captures, and a relaxed capture lets the thread allocate.
static void beside_a_capture() {
    cudaStream_t capturing, other;
    CHECK(cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    DeviceArray<int> data(COUNT), beside(COUNT);
    data.zero();
    beside.zero();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed));
    add<<<BLOCKS, 128, 0, capturing>>>(data.get(), COUNT, 7);
    add<<<BLOCKS, 128, 0, other>>>(beside.get(), COUNT, 9);
    CHECK(cudaStreamSynchronize(other));
    int* extra = nullptr;
    CHECK(cudaMalloc(&extra, 4096));
    CHECK(cudaFree(extra));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(capturing, &graph));
    EXPECT(all(beside.download(), 9) && all(data.download(), 0));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    // One graph, launched into different streams, one launch after another.
    for (int round = 0; round < 10; round++) {
        CHECK(cudaGraphLaunch(exec, round % 2 ? capturing : other));
    }
    CHECK(cudaDeviceSynchronize());
    EXPECT(all(data.download(), 70));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(capturing));
    CHECK(cudaStreamDestroy(other));
    printf("beside a capture: right\n");
}

// Many nodes, as a framework captures a step, in a thread's own capture mode.
static void many_nodes() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    DeviceArray<int> data(COUNT);
    data.zero();
    CHECK(cudaDeviceSynchronize());
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT(mode == cudaStreamCaptureModeGlobal);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 2000; i++) {
        add<<<BLOCKS, 128, 0, stream>>>(data.get(), COUNT, i % 7);
    }
    int* extra = nullptr;
    CHECK(cudaMalloc(&extra, 4096));
    CHECK(cudaFree(extra));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT(mode == cudaStreamCaptureModeRelaxed);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    int wanted = 0;
    for (int i = 0; i < 2000; i++) wanted += i % 7;
    EXPECT(all(data.download(), 2 * wanted));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    printf("many nodes: right\n");
}

// A kernel's node has the priority of the stream in which it was captured.
static void priorities() {
    int least = 0, greatest = 0;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    DeviceArray<int> data(COUNT);
    data.zero();
    for (int priority : {least, greatest}) {
        cudaStream_t stream;
        CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        add<<<BLOCKS, 128, 0, stream>>>(data.get(), COUNT, 3);
        cudaGraph_t graph;
        CHECK(cudaStreamEndCapture(stream, &graph));
        cudaGraphNode_t node;
        size_t count = 1;
        CHECK(cudaGraphGetNodes(graph, &node, &count));
        cudaLaunchAttributeValue value = {};
        CHECK(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributePriority, &value));
        EXPECT(value.priority == priority);
        cudaGraphExec_t exec;
        CHECK(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaStreamDestroy(stream));
    }
    EXPECT(all(data.download(), 6));
    printf("priorities: right\n");
}

int main() {
    priorities();
    one_stream();
    fork_and_join();
    beside_a_capture();
    many_nodes();
    return outcome();
}
