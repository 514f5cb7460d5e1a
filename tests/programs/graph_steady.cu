// Graphs that are changed before each launch, as programs do that capture every step: what an
// executable needed before it was changed must not stay for good. With an argument it then stays
// for so many milliseconds, so that a test can look at what is left.
#include "check.h"

#include <chrono>
#include <thread>

static const int kCount = 1 << 19;
static const size_t kBytes = kCount * sizeof(int);
static const int kBlocks = kCount / 256;

__global__ void add(int* data, int amount) { data[blockIdx.x * blockDim.x + threadIdx.x] += amount; }

static int calls;
static void called(void* amount) { calls += *static_cast<int*>(amount); }

struct Step {
    cudaStream_t stream;
    int *in[2], *out;
    DeviceArray<int> data{kCount};

    Step() {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (int*& memory : in) CHECK(cudaMallocHost(&memory, kBytes));
        CHECK(cudaMallocHost(&out, kBytes));
    }

    cudaGraph_t capture(int which, int amount, int* argument) {
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        CHECK(cudaMemcpyAsync(data.get(), in[which], kBytes, cudaMemcpyHostToDevice, stream));
        add<<<kBlocks, 256, 0, stream>>>(data.get(), amount);
        CHECK(cudaMemcpyAsync(out, data.get(), kBytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaLaunchHostFunc(stream, called, argument));
        CHECK(cudaStreamEndCapture(stream, &graph));
        return graph;
    }

    void fill(int which, int value) {
        for (int i = 0; i < kCount; i += 1000) in[which][i] = value;
    }

    void check(int value) {
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < kCount; i += 1000) EXPECT(out[i] == value);
    }
};

// The whole executable is updated, from a graph that is then gone. Two launches are under way at a
// time.
static void captured(Step& step) {
    int one = 1;
    cudaGraph_t graph = step.capture(0, 0, &one);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (int round = 1; round <= 80; round++) {
        step.fill(round % 2, 10 * round);
        graph = step.capture(round % 2, round, &one);
        cudaGraphExecUpdateResultInfo info;
        CHECK(cudaGraphExecUpdate(exec, graph, &info));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaGraphLaunch(exec, step.stream));
        if (round % 2 == 0) step.check(11 * round);
    }
    CHECK(cudaStreamSynchronize(step.stream));
    EXPECT(calls == 80);
    // The executable outlives the test's look: what it holds is what it needs.
}

// Single nodes of it are.
static void set(Step& step) {
    int amounts[] = {1, 2, 3};
    cudaGraph_t graph = step.capture(0, 5, &amounts[0]);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaGraphNode_t nodes[4], in = nullptr, host = nullptr;
    size_t count = 4;
    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    for (size_t i = 0; i < count; i++) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(nodes[i], &type));
        if (type == cudaGraphNodeTypeHost) host = nodes[i];
        size_t before = 0;
        CHECK(cudaGraphNodeGetDependencies(nodes[i], nullptr, nullptr, &before));
        if (before == 0) in = nodes[i];
    }
    calls = 0;
    int expected = 0;
    for (int round = 1; round <= 80; round++) {
        step.fill(round % 2, round);
        CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, in, step.data.get(), step.in[round % 2], kBytes, cudaMemcpyHostToDevice));
        cudaHostNodeParams params = {};
        params.fn = called;
        params.userData = &amounts[round % 3];
        CHECK(cudaGraphExecHostNodeSetParams(exec, host, &params));
        expected += amounts[round % 3];
        CHECK(cudaGraphLaunch(exec, step.stream));
        if (round % 2 == 0) step.check(round + 5);
    }
    CHECK(cudaStreamSynchronize(step.stream));
    EXPECT(calls == expected);
    CHECK(cudaGraphDestroy(graph));
}

int main(int argc, char** argv) {
    Step step;
    captured(step);
    set(step);
    printf("changed\n");
    fflush(stdout);
    if (argc > 1) std::this_thread::sleep_for(std::chrono::milliseconds(atoi(argv[1])));
    return 0;
}
