// Graphs built node by node: every question about them, changes, clones, child graphs, kernel
// attributes.
#include "graphs.h"

#include <algorithm>
#include <cstring>

static cudaKernelNodeParams adding(int** data, int* count, int* amount, void** args) {
    args[0] = data;
    args[1] = count;
    args[2] = amount;
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void*>(add);
    params.gridDim = dim3(BLOCKS);
    params.blockDim = dim3(128);
    params.kernelParams = args;
    return params;
}

static void run(cudaGraph_t graph, int times) {
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < times; i++) CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGraphExecDestroy(exec));
}

static void diamond() {
    DeviceArray<int> a(COUNT), b(COUNT), out(COUNT);
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams fill = {};
    fill.dst = a.get();
    fill.value = 0;
    fill.elementSize = 4;
    fill.width = COUNT;
    fill.height = 1;
    cudaGraphNode_t fill_a, copy_b, add_a, add_b, sum;
    CHECK(cudaGraphAddMemsetNode(&fill_a, graph, nullptr, 0, &fill));
    CHECK(cudaGraphAddMemcpyNode1D(&copy_b, graph, &fill_a, 1, b.get(), a.get(), a.bytes(), cudaMemcpyDeviceToDevice));
    int *pa = a.get(), *pb = b.get(), *po = out.get();
    int count = COUNT, one = 1, ten = 10;
    void* args[4];
    cudaKernelNodeParams kernel = adding(&pa, &count, &one, args);
    // The copy reads what this kernel would change.
    CHECK(cudaGraphAddKernelNode(&add_a, graph, &copy_b, 1, &kernel));
    kernel = adding(&pb, &count, &ten, args);
    CHECK(cudaGraphAddKernelNode(&add_b, graph, &copy_b, 1, &kernel));
    void* sum_args[] = {&po, &pa, &pb, &count};
    kernel = {};
    kernel.func = reinterpret_cast<void*>(sum_of);
    kernel.gridDim = dim3(BLOCKS);
    kernel.blockDim = dim3(128);
    kernel.kernelParams = sum_args;
    cudaGraphNode_t both[] = {add_a, add_b};
    CHECK(cudaGraphAddKernelNode(&sum, graph, both, 2, &kernel));

    size_t nodes = 0, roots = 0, edges = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    printf("diamond: %zu nodes, %zu roots, %zu edges\n", nodes, roots, edges);
    cudaGraphNode_t root[4] = {};
    roots = 4;
    CHECK(cudaGraphGetRootNodes(graph, root, &roots));
    EXPECT(roots == 1 && root[0] == fill_a && root[1] == nullptr);
    std::vector<cudaGraphNode_t> from(edges), to(edges);
    CHECK(cudaGraphGetEdges(graph, from.data(), to.data(), nullptr, &edges));
    auto has = [&](cudaGraphNode_t f, cudaGraphNode_t t) {
        for (size_t i = 0; i < edges; i++) {
            if (from[i] == f && to[i] == t) return true;
        }
        return false;
    };
    EXPECT(has(fill_a, copy_b) && has(copy_b, add_a) && has(copy_b, add_b) && has(add_a, sum) && has(add_b, sum));
    size_t dependencies = 0, dependents = 0;
    CHECK(cudaGraphNodeGetDependencies(sum, nullptr, nullptr, &dependencies));
    CHECK(cudaGraphNodeGetDependentNodes(copy_b, nullptr, nullptr, &dependents));
    EXPECT(dependencies == 2 && dependents == 2);
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(fill_a, &type));
    EXPECT(type == cudaGraphNodeTypeMemset);
    CHECK(cudaGraphNodeGetType(copy_b, &type));
    EXPECT(type == cudaGraphNodeTypeMemcpy);
    CHECK(cudaGraphNodeGetType(sum, &type));
    EXPECT(type == cudaGraphNodeTypeKernel);

    // What was given comes back.
    cudaMemsetParams fill_back = {};
    CHECK(cudaGraphMemsetNodeGetParams(fill_a, &fill_back));
    EXPECT(fill_back.dst == fill.dst && fill_back.width == fill.width && fill_back.elementSize == 4);
    cudaKernelNodeParams back = {};
    CHECK(cudaGraphKernelNodeGetParams(add_b, &back));
    EXPECT(back.gridDim.x == static_cast<unsigned>(BLOCKS) && back.blockDim.x == 128);
    EXPECT(*static_cast<int*>(back.kernelParams[2]) == 10 && *static_cast<int**>(back.kernelParams[0]) == pb);

    run(graph, 2);
    EXPECT(all(out.download(), 11));

    // Other parameters, for executables made from now on.
    int hundred = 100;
    kernel = adding(&pb, &count, &hundred, args);
    CHECK(cudaGraphKernelNodeSetParams(add_b, &kernel));
    fill.value = 0x01010101;
    CHECK(cudaGraphMemsetNodeSetParams(fill_a, &fill));
    run(graph, 1);
    EXPECT(all(out.download(), 2 * 0x01010101 + 101));

    // A clone is a graph of its own.
    cudaGraph_t clone;
    CHECK(cudaGraphClone(&clone, graph));
    cudaGraphNode_t in_clone;
    CHECK(cudaGraphNodeFindInClone(&in_clone, add_b, clone));
    int thousand = 1000;
    kernel = adding(&pb, &count, &thousand, args);
    CHECK(cudaGraphKernelNodeSetParams(in_clone, &kernel));
    run(clone, 1);
    EXPECT(all(out.download(), 2 * 0x01010101 + 1001));
    run(graph, 1);
    EXPECT(all(out.download(), 2 * 0x01010101 + 101));
    CHECK(cudaGraphDestroy(clone));

    // Edges and nodes come and go.
    cudaGraphNode_t empty;
    CHECK(cudaGraphAddEmptyNode(&empty, graph, nullptr, 0));
    CHECK(cudaGraphAddDependencies(graph, &sum, &empty, nullptr, 1));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    EXPECT(edges == 6);
    CHECK(cudaGraphRemoveDependencies(graph, &add_b, &sum, nullptr, 1));
    CHECK(cudaGraphDestroyNode(add_b));
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    EXPECT(nodes == 5 && edges == 4);
    run(graph, 1);
    EXPECT(all(out.download(), 2 * 0x01010101 + 1));
    CHECK(cudaGraphDestroy(graph));
    printf("diamond: right\n");
}

// A graph inside a node is a copy, and can be changed there.
static void child() {
    DeviceArray<int> data(COUNT);
    data.zero();
    cudaGraph_t inner, outer, embedded;
    CHECK(cudaGraphCreate(&inner, 0));
    CHECK(cudaGraphCreate(&outer, 0));
    int* pd = data.get();
    int count = COUNT, one = 1, ten = 10, fifty = 50;
    void* args[3];
    cudaKernelNodeParams kernel = adding(&pd, &count, &one, args);
    cudaGraphNode_t node, first, second;
    CHECK(cudaGraphAddKernelNode(&node, inner, nullptr, 0, &kernel));
    CHECK(cudaGraphAddChildGraphNode(&first, outer, nullptr, 0, inner));
    kernel = adding(&pd, &count, &ten, args);
    CHECK(cudaGraphKernelNodeSetParams(node, &kernel));
    CHECK(cudaGraphAddChildGraphNode(&second, outer, &first, 1, inner));
    CHECK(cudaGraphDestroy(inner));
    run(outer, 3);
    EXPECT(all(data.download(), 33));
    CHECK(cudaGraphChildGraphNodeGetGraph(first, &embedded));
    cudaGraphNode_t inside;
    size_t nodes = 1;
    CHECK(cudaGraphGetNodes(embedded, &inside, &nodes));
    EXPECT(nodes == 1);
    kernel = adding(&pd, &count, &fifty, args);
    CHECK(cudaGraphKernelNodeSetParams(inside, &kernel));
    run(outer, 1);
    EXPECT(all(data.download(), 93));
    CHECK(cudaGraphDestroy(outer));
    printf("child graphs: right\n");
}

// Rows of a rectangle, and a box.
static void boxes() {
    const size_t width = 24, height = 5, depth = 3;
    cudaPitchedPtr box;
    CHECK(cudaMalloc3D(&box, make_cudaExtent(width, height, depth)));
    DeviceArray<unsigned char> packed(width * height * depth);
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams fill = {};
    fill.dst = box.ptr;
    fill.pitch = box.pitch;
    fill.value = 7;
    fill.elementSize = 1;
    fill.width = width;
    fill.height = height * depth;
    cudaGraphNode_t filled, copied;
    CHECK(cudaGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = box;
    copy.srcPtr.xsize = width;
    copy.srcPtr.ysize = height;
    copy.dstPtr = make_cudaPitchedPtr(packed.get(), width, width, height);
    copy.extent = make_cudaExtent(width, height, depth);
    copy.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaGraphAddMemcpyNode(&copied, graph, &filled, 1, &copy));
    cudaMemcpy3DParms back = {};
    CHECK(cudaGraphMemcpyNodeGetParams(copied, &back));
    EXPECT(back.extent.width == width && back.extent.height == height && back.extent.depth == depth);
    EXPECT(back.dstPtr.ptr == packed.get() && back.srcPtr.ptr == box.ptr);
    packed.zero();
    run(graph, 1);
    auto bytes = packed.download();
    EXPECT(std::all_of(bytes.begin(), bytes.end(), [](unsigned char byte) { return byte == 7; }));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(box.ptr));
    printf("boxes: right\n");
}

// Events that a graph records and waits for.
static void events() {
    DeviceArray<int> data(COUNT);
    data.zero();
    cudaEvent_t start, stop, back;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    int* pd = data.get();
    int count = COUNT, one = 1;
    void* args[3];
    cudaKernelNodeParams kernel = adding(&pd, &count, &one, args);
    cudaGraphNode_t waits, adds, records;
    CHECK(cudaGraphAddEventWaitNode(&waits, graph, nullptr, 0, start));
    CHECK(cudaGraphAddKernelNode(&adds, graph, &waits, 1, &kernel));
    CHECK(cudaGraphAddEventRecordNode(&records, graph, &adds, 1, stop));
    CHECK(cudaGraphEventRecordNodeGetEvent(records, &back));
    EXPECT(back == stop);
    CHECK(cudaGraphEventWaitNodeGetEvent(waits, &back));
    EXPECT(back == start);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventRecord(start, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventSynchronize(stop));
    EXPECT(all(data.download(), 1));
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    EXPECT(milliseconds >= 0);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    printf("events: right\n");
}

int main() {
    CHECK(cudaFree(nullptr));
    diamond();
    child();
    boxes();
    events();
    return outcome();
}
