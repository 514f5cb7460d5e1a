// Conditional nodes: bodies that run as kernels say. On a driver that lacks them the program says
// so and is done.
#include "check.h"
#include "driver.h"

__global__ void add(int* data, int amount) { *data += amount; }

// Sets the value of a conditional node to what is in memory.
__global__ void decide(cudaGraphConditionalHandle handle, const int* value) {
    cudaGraphSetConditional(handle, static_cast<unsigned>(*value));
}

// Counts down; the loop goes on until nothing is left.
__global__ void count_down(cudaGraphConditionalHandle handle, int* left, int* rounds) {
    *rounds += 1;
    *left -= 1;
    cudaGraphSetConditional(handle, *left > 0 ? 1 : 0);
}

static cudaGraphNode_t kernel(cudaGraph_t graph, std::vector<cudaGraphNode_t> before, void* function, void** args) {
    cudaKernelNodeParams params = {};
    params.func = function;
    params.gridDim = dim3(1);
    params.blockDim = dim3(1);
    params.kernelParams = args;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddKernelNode(&node, graph, before.data(), before.size(), &params));
    return node;
}

static std::vector<cudaGraph_t> conditional(cudaGraph_t graph, cudaGraphNode_t before, cudaGraphConditionalHandle handle,
                                            cudaGraphConditionalNodeType type, unsigned size) {
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, before ? &before : nullptr, nullptr, before ? 1 : 0, &params));
    cudaGraphNodeType kind;
    CHECK(cudaGraphNodeGetType(node, &kind));
    EXPECT(kind == cudaGraphNodeTypeConditional);
    return std::vector<cudaGraph_t>(params.conditional.phGraph_out, params.conditional.phGraph_out + size);
}

static int value_of(const DeviceArray<int>& data) { return data.download()[0]; }

static void set(DeviceArray<int>& data, int value) { data.upload({value}); }

static void if_node() {
    DeviceArray<int> condition(1), out(1);
    set(out, 0);
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, cudaGraphCondAssignDefault));
    int *pc = condition.get(), *po = out.get(), amount = 5;
    void* decide_args[] = {&handle, &pc};
    void* add_args[] = {&po, &amount};
    auto decides = kernel(graph, {}, reinterpret_cast<void*>(decide), decide_args);
    auto bodies = conditional(graph, decides, handle, cudaGraphCondTypeIf, 1);
    auto adds = kernel(bodies[0], {}, reinterpret_cast<void*>(add), add_args);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    int wanted = 0;
    for (int round = 0; round < 6; round++) {
        set(condition, round % 2);
        CHECK(cudaGraphLaunch(exec, 0));
        CHECK(cudaDeviceSynchronize());
        wanted += round % 2 ? 5 : 0;
        EXPECT(value_of(out) == wanted);
    }
    (void)adds;
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    printf("if: right\n");
}

static void while_node() {
    DeviceArray<int> left(1), rounds(1), after(1);
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    int *pl = left.get(), *pr = rounds.get();
    auto bodies = conditional(graph, nullptr, handle, cudaGraphCondTypeWhile, 1);
    // The body is captured.
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCaptureToGraph(stream, bodies[0], nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
    count_down<<<1, 1, 0, stream>>>(handle, pl, pr);
    // The program knows the graph: it need not be told.
    CHECK(cudaStreamEndCapture(stream, nullptr));
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == cudaStreamCaptureStatusNone);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int count : {1, 7, 100}) {
        set(left, count);
        set(rounds, 0);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(value_of(left) == 0 && value_of(rounds) == count);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    printf("while: right\n");
}

int main() {
    int version = 0;
    CHECK(cudaDriverGetVersion(&version));
    if (version < 12040) {
        printf("this driver has no conditional nodes\n");
        return 0;
    }
    if_node();
    while_node();
    return outcome();
}
