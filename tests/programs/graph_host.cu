// Graphs that use the host: its memory, read and written anew at each launch, and its functions, in
// the graph's order.
#include "check.h"

#include <algorithm>
#include <atomic>

__global__ void add(int* data, int count, int amount) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[i] += amount;
}

static const int COUNT = 100000;
static const int BLOCKS = (COUNT + 127) / 128;

struct Pinned {
    explicit Pinned(int count) { CHECK(cudaMallocHost(&data, count * sizeof(int))); }
    ~Pinned() { cudaFreeHost(data); }
    int* data;
};

// What a copy from page-locked memory brings is what is there when the launch comes to it.
static void current_bytes() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Pinned in(COUNT), out(COUNT);
    DeviceArray<int> data(COUNT);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemcpyAsync(data.get(), in.data, data.bytes(), cudaMemcpyHostToDevice, stream));
    add<<<BLOCKS, 128, 0, stream>>>(data.get(), COUNT, 1);
    CHECK(cudaMemcpyAsync(out.data, data.get(), data.bytes(), cudaMemcpyDeviceToHost, stream));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 3);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < COUNT; i++) {
            in.data[i] = i * (round + 1);
            out.data[i] = -1;
        }
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < COUNT; i++) EXPECT(out.data[i] == i * (round + 1) + 1);
    }
    // Two executables of one graph do not get into each other's way.
    cudaGraphExec_t second;
    cudaStream_t other;
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaGraphInstantiate(&second, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphLaunch(second, other));
    CHECK(cudaStreamSynchronize(other));
    EXPECT(out.data[COUNT - 1] == (COUNT - 1) * 5 + 1);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphExecDestroy(second));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(other));
    printf("current bytes: right\n");
}

struct Step {
    std::vector<int>* order;
    int number;
    const int* seen;
    int value;
};

static void step(void* data) {
    auto step = static_cast<Step*>(data);
    step->order->push_back(step->number);
    if (step->seen != nullptr) step->value = *step->seen;
}

static void functions() {
    Pinned seen(1), source(1);
    DeviceArray<int> data(1);
    std::vector<int> order;
    Step steps[3] = {{&order, 1, nullptr, 0}, {&order, 2, seen.data, 0}, {&order, 3, nullptr, 0}};
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t nodes[6];
    cudaHostNodeParams host = {step, &steps[0]};
    CHECK(cudaGraphAddHostNode(&nodes[0], graph, nullptr, 0, &host));
    CHECK(cudaGraphAddMemcpyNode1D(&nodes[1], graph, &nodes[0], 1, data.get(), source.data, 4, cudaMemcpyHostToDevice));
    int* pd = data.get();
    int count = 1, amount = 5;
    void* args[] = {&pd, &count, &amount};
    cudaKernelNodeParams kernel = {};
    kernel.func = reinterpret_cast<void*>(add);
    kernel.gridDim = dim3(1);
    kernel.blockDim = dim3(32);
    kernel.kernelParams = args;
    CHECK(cudaGraphAddKernelNode(&nodes[2], graph, &nodes[1], 1, &kernel));
    CHECK(cudaGraphAddMemcpyNode1D(&nodes[3], graph, &nodes[2], 1, seen.data, data.get(), 4, cudaMemcpyDeviceToHost));
    host.userData = &steps[1];
    CHECK(cudaGraphAddHostNode(&nodes[4], graph, &nodes[3], 1, &host));
    host.userData = &steps[2];
    CHECK(cudaGraphAddHostNode(&nodes[5], graph, &nodes[4], 1, &host));
    cudaHostNodeParams back = {};
    CHECK(cudaGraphHostNodeGetParams(nodes[4], &back));
    EXPECT(back.fn == step && back.userData == &steps[1]);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (int round = 0; round < 3; round++) {
        order.clear();
        *source.data = 10 * round;
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(order == std::vector<int>({1, 2, 3}));
        EXPECT(steps[1].value == 10 * round + 5 && *seen.data == steps[1].value);
    }
    // Another function's argument, for one executable.
    Step replaced = {&order, 30, nullptr, 0};
    host.userData = &replaced;
    CHECK(cudaGraphExecHostNodeSetParams(exec, nodes[5], &host));
    order.clear();
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(order == std::vector<int>({1, 2, 30}));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    printf("functions: right\n");
}

// A function that writes what a later copy of the same graph reads.
static void write_source(void* data) {
    int* values = static_cast<int*>(data);
    for (int i = 0; i < 1000; i++) values[i] = values[i] + i;
}

static void function_before_copy() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Pinned source(1000);
    DeviceArray<int> data(1000);
    for (int i = 0; i < 1000; i++) source.data[i] = 0;
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaLaunchHostFunc(stream, write_source, source.data));
    CHECK(cudaMemcpyAsync(data.get(), source.data, data.bytes(), cudaMemcpyHostToDevice, stream));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 4; round++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    auto values = data.download();
    for (int i = 0; i < 1000; i++) EXPECT(values[i] == 4 * i);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    printf("function before copy: right\n");
}

// What a graph brings to host memory, a copy behind it takes along.
static void copy_behind_graph() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Pinned between(COUNT);
    DeviceArray<int> from(COUNT), to(COUNT);
    from.zero();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    add<<<BLOCKS, 128, 0, stream>>>(from.get(), COUNT, 1);
    CHECK(cudaMemcpyAsync(between.data, from.get(), from.bytes(), cudaMemcpyDeviceToHost, stream));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 1; round <= 4; round++) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaMemcpyAsync(to.get(), between.data, to.bytes(), cudaMemcpyHostToDevice, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int value : to.download()) EXPECT(value == round);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    printf("copy behind a graph: right\n");
}

// Rows of host memory that are apart, and a node's other memory for one executable.
static void rows() {
    const int width = 10, height = 6, pitch = 16;
    Pinned source(pitch * height), target(pitch * height);
    DeviceArray<int> data(width * height);
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    auto device = make_cudaPitchedPtr(data.get(), width * 4, width * 4, height);
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(source.data, pitch * 4, width * 4, height);
    copy.dstPtr = device;
    copy.extent = make_cudaExtent(width * 4, height, 1);
    copy.kind = cudaMemcpyHostToDevice;
    cudaGraphNode_t up, down;
    CHECK(cudaGraphAddMemcpyNode(&up, graph, nullptr, 0, &copy));
    copy.srcPtr = device;
    copy.dstPtr = make_cudaPitchedPtr(target.data, pitch * 4, width * 4, height);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaGraphAddMemcpyNode(&down, graph, &up, 1, &copy));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    auto check = [&](int* where, int offset) {
        for (int y = 0; y < height; y++) {
            for (int x = 0; x < pitch; x++) {
                int wanted = x < width ? y * pitch + x + offset : -1;
                EXPECT(where[y * pitch + x] == wanted);
            }
        }
    };
    for (int i = 0; i < pitch * height; i++) source.data[i] = i, target.data[i] = -1;
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    check(target.data, 0);
    // An executable's copies of rows cannot be changed; their bytes are read anew each time.
    for (int i = 0; i < pitch * height; i++) source.data[i] = i + 7, target.data[i] = -1;
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    check(target.data, 7);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    printf("rows: right\n");
}

// Copies of host memory that are switched off bring nothing, and bring the current bytes again when
// they are switched on.
static void switched() {
    const int n = 1000;
    Pinned source(n), target(n);
    DeviceArray<int> data(n);
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t up, down, across;
    CHECK(cudaGraphAddMemcpyNode1D(&up, graph, nullptr, 0, data.get(), source.data, n * 4, cudaMemcpyHostToDevice));
    CHECK(cudaGraphAddMemcpyNode1D(&down, graph, &up, 1, target.data, data.get(), n * 4, cudaMemcpyDeviceToHost));
    Pinned other(n);
    CHECK(cudaGraphAddMemcpyNode1D(&across, graph, &down, 1, other.data, source.data, n * 4, cudaMemcpyHostToHost));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    auto run = [&](int value) {
        for (int i = 0; i < n; i++) source.data[i] = value, target.data[i] = -1, other.data[i] = -1;
        CHECK(cudaGraphLaunch(exec, 0));
        CHECK(cudaDeviceSynchronize());
    };
    auto are = [&](const Pinned& memory, int value) { return std::all_of(memory.data, memory.data + n, [&](int x) { return x == value; }); };
    run(1);
    EXPECT(are(target, 1) && are(other, 1));
    CHECK(cudaGraphNodeSetEnabled(exec, up, 0));
    run(2);
    EXPECT(are(target, 1) && are(other, 2));
    CHECK(cudaGraphNodeSetEnabled(exec, down, 0));
    CHECK(cudaGraphNodeSetEnabled(exec, across, 0));
    run(3);
    EXPECT(are(target, -1) && are(other, -1));
    CHECK(cudaGraphNodeSetEnabled(exec, up, 1));
    CHECK(cudaGraphNodeSetEnabled(exec, down, 1));
    run(4);
    EXPECT(are(target, 4) && are(other, -1));
    unsigned enabled = 9;
    CHECK(cudaGraphNodeGetEnabled(exec, across, &enabled));
    EXPECT(enabled == 0);
    CHECK(cudaGraphNodeSetEnabled(exec, across, 1));
    run(5);
    EXPECT(are(target, 5) && are(other, 5));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    printf("switched copies: right\n");
}

int main() {
    current_bytes();
    functions();
    function_before_copy();
    copy_behind_graph();
    rows();
    switched();
    return outcome();
}
