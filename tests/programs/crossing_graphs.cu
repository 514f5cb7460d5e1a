// Graphs whose nodes are on two devices, whatever machine each is on. Arguments: the two devices;
// without them 0 and the last one. A third one is the name of the only part to run. With "lost", a
// launch on the first device waits for the last one until that one's server is gone.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include "door.h"
#include "place.h"

static const size_t COUNT = 70001;
static const size_t BYTES = COUNT * sizeof(unsigned);

// Work of one device, with a second memory and an event for a graph.
struct Work : OwnedPlace {
    unsigned* other;
    cudaEvent_t event_inside;

    explicit Work(int device) : OwnedPlace(device, COUNT) {
        CHECK(cudaMalloc(&other, BYTES));
        CHECK(cudaMemset(other, 0, BYTES));
        CHECK(cudaEventCreateWithFlags(&event_inside, cudaEventDisableTiming));
        CHECK(cudaDeviceSynchronize());
    }
    ~Work() {
        use();
        CHECK(cudaFree(other));
        CHECK(cudaEventDestroy(event_inside));
    }
};

static void CUDART_CB count_one(void* counter) { ++*static_cast<std::atomic<unsigned>*>(counter); }

static cudaGraphExec_t instantiated(cudaGraph_t graph) {
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    return exec;
}

static cudaGraphExec_t made_of(cudaGraph_t graph) {
    cudaGraphExec_t exec = instantiated(graph);
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

// Nodes of a graph, each behind those named.
struct Builder {
    cudaGraph_t graph;
    using Nodes = std::vector<cudaGraphNode_t>;

    Builder() { CHECK(cudaGraphCreate(&graph, 0)); }
    static cudaKernelNodeParams raising(unsigned*& memory, const size_t& count, unsigned& by, void** arguments) {
        arguments[0] = &memory;
        arguments[1] = const_cast<size_t*>(&count);
        arguments[2] = &by;
        cudaKernelNodeParams kernel = {};
        kernel.func = reinterpret_cast<void*>(add);
        kernel.gridDim = dim3(blocks_for(COUNT, 256)), kernel.blockDim = dim3(256), kernel.kernelParams = arguments;
        return kernel;
    }
    cudaGraphNode_t raise(Work& place, unsigned by, const Nodes& before = {}) {
        place.use();
        size_t count = COUNT;
        void* arguments[3];
        cudaKernelNodeParams kernel = raising(place.memory, count, by, arguments);
        cudaGraphNode_t node;
        CHECK(cudaGraphAddKernelNode(&node, graph, before.data(), before.size(), &kernel));
        return node;
    }
    cudaGraphNode_t zero(unsigned* memory, const Nodes& before = {}) {
        cudaMemsetParams fill = {};
        fill.dst = memory, fill.elementSize = 4, fill.width = COUNT, fill.height = 1;
        cudaGraphNode_t node;
        CHECK(cudaGraphAddMemsetNode(&node, graph, before.data(), before.size(), &fill));
        return node;
    }
    cudaGraphNode_t copy(unsigned* to, const unsigned* from, const Nodes& before = {}) {
        cudaGraphNode_t node;
        CHECK(cudaGraphAddMemcpyNode1D(&node, graph, before.data(), before.size(), to, from, BYTES,
                                       cudaMemcpyDefault));
        return node;
    }
    cudaGraphNode_t child(cudaGraph_t inner, const Nodes& before = {}) {
        cudaGraphNode_t node;
        CHECK(cudaGraphAddChildGraphNode(&node, graph, before.data(), before.size(), inner));
        return node;
    }
};

// A capture that the other device's stream joins and leaves, with copies both ways.
static cudaGraph_t captured(Work& own, Work& other) {
    cudaGraph_t graph;
    own.use();
    CHECK(cudaStreamBeginCapture(own.stream, cudaStreamCaptureModeThreadLocal));
    own.raise(1);
    own.record();
    other.wait_for(own);
    other.copy_from(own, other.stream);
    other.raise(10);
    other.record();
    own.wait_for(other);
    own.copy_from(other, own.stream);
    own.raise(100);
    CHECK(cudaStreamEndCapture(own.stream, &graph));
    return graph;
}

// Fills of the other device's memory, captured and by nodes, in a context of this device.
static void fills(int here, int there) {
    Work own(here), other(there);
    auto expect_zero = [&] {
        std::vector<unsigned> values(COUNT, 1);
        CHECK(cudaMemcpy(values.data(), other.memory, BYTES, cudaMemcpyDefault));
        for (unsigned value : values) EXPECT(value == 0);
    };
    cudaGraph_t graph;
    own.use();
    CHECK(cudaStreamBeginCapture(own.stream, cudaStreamCaptureModeThreadLocal));
    own.fill(5);
    own.copy_from(other, own.stream);
    CHECK(cudaMemsetAsync(other.memory, 0, BYTES, own.stream));
    own.raise(1);
    CHECK(cudaStreamEndCapture(own.stream, &graph));
    cudaGraphExec_t exec = made_of(graph);
    for (unsigned round = 0; round < 3; round++) {
        other.fill(20 + round);
        other.finish();
        own.use();
        CHECK(cudaGraphLaunch(exec, own.stream));
        own.expect(21 + round);
        expect_zero();
    }
    CHECK(cudaGraphExecDestroy(exec));
    Builder builder;
    own.use();
    cudaGraphNode_t copied = builder.copy(own.memory, other.memory);
    cudaGraphNode_t zeroed = builder.zero(other.memory, {copied});
    builder.raise(own, 2, {zeroed});
    own.use();
    exec = made_of(builder.graph);
    other.fill(30);
    other.finish();
    own.use();
    CHECK(cudaGraphLaunch(exec, own.stream));
    own.expect(32);
    expect_zero();
    CHECK(cudaGraphExecDestroy(exec));
}

static void capture(int here, int there) {
    Work own(here), other(there);
    cudaGraphExec_t exec = made_of(captured(own, other));
    own.fill(0);
    // Many launches with nobody waiting, with work of their stream between them.
    for (unsigned round = 0; round < 30; round++) {
        own.use();
        CHECK(cudaGraphLaunch(exec, own.stream));
        own.raise(1000);
    }
    own.expect(30 * 1111);
    other.expect(29 * 1111 + 11);
    // In streams of either device, in turns: launches follow each other.
    for (unsigned round = 0; round < 10; round++) {
        (round % 2 ? own : other).use();
        CHECK(cudaGraphLaunch(exec, round % 2 ? own.stream : other.stream));
    }
    own.finish();
    other.finish();
    own.expect(30 * 1111 + 10 * 111);
    // In the default stream, too.
    own.use();
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaGraphLaunch(exec, cudaStreamPerThread));
    CHECK(cudaDeviceSynchronize());
    own.expect(30 * 1111 + 12 * 111);
    // It may go while it runs.
    CHECK(cudaGraphLaunch(exec, own.stream));
    CHECK(cudaGraphExecDestroy(exec));
    own.expect(30 * 1111 + 13 * 111);
}

// A launch waits for its stream, and its stream for it, and nobody else does.
static void in_order(int here, int there) {
    Work own(here), other(there), aside(there);
    cudaGraphExec_t exec = made_of(captured(own, other));
    for (Work* before : {&own, &other}) {
        Door door;
        own.fill(5);
        own.finish();
        before->use();
        CHECK(cudaLaunchHostFunc(before->stream, Door::wait, &door));
        CHECK(cudaGraphLaunch(exec, before->stream));
        EXPECT(cudaStreamQuery(before->stream) == cudaErrorNotReady);
        aside.fill(1);
        aside.expect(1);
        door.open = true;
        before->finish();
        own.expect(5 + 111);
        other.expect(5 + 11);
    }
    CHECK(cudaGraphExecDestroy(exec));
}

// Work on the one device, while the results of what was before are copied to the other one.
static void pipeline(int here, int there) {
    const unsigned rounds = 8;
    Work own(here), other(there);
    Builder builder;
    std::vector<unsigned*> sent(rounds), arrived(rounds);
    std::vector<cudaGraphNode_t> last, behind;
    own.fill(0);
    own.finish();
    for (unsigned round = 0; round < rounds; round++) {
        own.use();
        CHECK(cudaMalloc(&sent[round], BYTES));
        last = {builder.raise(own, 1, last)};
        last = {builder.copy(sent[round], own.memory, last)};
        other.use();
        CHECK(cudaMalloc(&arrived[round], BYTES));
        behind.push_back(builder.copy(arrived[round], sent[round], last));
    }
    other.use();
    cudaGraphNode_t all;
    CHECK(cudaGraphAddEmptyNode(&all, builder.graph, behind.data(), behind.size()));
    builder.raise(other, 7, {all});
    cudaGraphExec_t exec = made_of(builder.graph);
    for (unsigned launch = 0; launch < 3; launch++) {
        own.use();
        CHECK(cudaGraphLaunch(exec, own.stream));
        own.finish();
        for (unsigned round = 0; round < rounds; round++) other.expect(arrived[round], launch * rounds + round + 1);
    }
    CHECK(cudaGraphExecDestroy(exec));
    for (unsigned round = 0; round < rounds; round++) {
        CHECK(cudaFree(sent[round]));
        CHECK(cudaFree(arrived[round]));
    }
}

// Copies in two and three dimensions, with arrays and back.
static void shapes(int here, int there) {
    const size_t width = 300, height = 40, deep = 5;
    const size_t count = width * height * deep;
    Work own(here), other(there);
    EXPECT(count <= COUNT);
    cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    cudaExtent extent = make_cudaExtent(width, height, deep);
    cudaExtent bytes = make_cudaExtent(width * sizeof(unsigned), height, deep);
    cudaArray_t array, back;
    cudaPitchedPtr pitched;
    other.use();
    CHECK(cudaMalloc3DArray(&array, &format, extent));
    CHECK(cudaMalloc3D(&pitched, bytes));
    own.use();
    CHECK(cudaMalloc3DArray(&back, &format, extent));
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    std::vector<cudaGraphNode_t> before;
    auto add_copy = [&](const cudaMemcpy3DParms& copy) {
        cudaGraphNode_t node;
        CHECK(cudaGraphAddMemcpyNode(&node, graph, before.data(), before.size(), &copy));
        before = {node};
    };
    auto packed = [&](unsigned* memory) {
        return make_cudaPitchedPtr(memory, width * sizeof(unsigned), width, height);
    };
    cudaMemcpy3DParms copy = {};
    copy.kind = cudaMemcpyDefault;
    copy.srcPtr = packed(own.memory);
    copy.dstPtr = pitched;
    copy.extent = bytes;
    add_copy(copy);
    copy = {};
    copy.kind = cudaMemcpyDefault;
    copy.srcPtr = pitched;
    copy.dstPtr = packed(own.other);
    copy.extent = bytes;
    add_copy(copy);
    copy = {};
    copy.kind = cudaMemcpyDeviceToDevice;
    copy.srcPtr = packed(own.other);
    copy.dstArray = array;
    copy.extent = extent;
    add_copy(copy);
    copy = {};
    copy.kind = cudaMemcpyDeviceToDevice;
    copy.srcArray = array;
    copy.dstArray = back;
    copy.extent = extent;
    add_copy(copy);
    copy = {};
    copy.kind = cudaMemcpyDeviceToDevice;
    copy.srcArray = back;
    copy.dstPtr = packed(other.memory);
    copy.extent = extent;
    add_copy(copy);
    // A row of many, in two dimensions.
    copy = {};
    copy.kind = cudaMemcpyDefault;
    copy.srcPtr = packed(other.memory);
    copy.dstPtr = packed(own.other);
    copy.srcPos = copy.dstPos = make_cudaPos(16, 2, 0);
    copy.extent = make_cudaExtent(64, 3, 1);
    add_copy(copy);
    cudaGraphExec_t exec = made_of(graph);
    for (unsigned seed : {3u, 4u}) {
        own.fill(seed);
        other.fill(77);
        other.finish();
        own.use();
        CHECK(cudaGraphLaunch(exec, own.stream));
        own.finish();
        for (auto [place, memory] : {std::pair{&other, other.memory}, std::pair{&own, own.other}}) {
            std::vector<unsigned> values(COUNT);
            place->use();
            CHECK(cudaMemcpy(values.data(), memory, BYTES, cudaMemcpyDefault));
            for (size_t i = 0; i < count; i++) EXPECT(values[i] == unsigned(i) * 3 + seed);
        }
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFreeArray(back));
    CHECK(cudaFree(pitched.ptr));
}

// Nodes of an executable get other parameters, one by one and all at once.
static void updates(int here, int there) {
    Work own(here), other(there);
    auto build = [&](unsigned first, unsigned second, unsigned* to, cudaGraphNode_t* nodes) {
        Builder builder;
        nodes[0] = builder.raise(own, first);
        own.use();
        nodes[1] = builder.copy(to, own.memory, {nodes[0]});
        nodes[2] = builder.raise(other, second, {nodes[1]});
        return builder.graph;
    };
    cudaGraphNode_t nodes[3], others[3];
    cudaGraph_t graph = build(1, 10, other.memory, nodes);
    cudaGraphExec_t exec = instantiated(graph);
    auto launch = [&] {
        own.fill(0);
        other.fill(500);
        other.fill(other.other, 600);
        other.finish();
        own.use();
        CHECK(cudaGraphLaunch(exec, own.stream));
        own.finish();
    };
    launch();
    other.expect(11);
    // A kernel of either device.
    size_t count = COUNT;
    unsigned by = 2;
    void* arguments[3];
    cudaKernelNodeParams kernel = Builder::raising(own.memory, count, by, arguments);
    own.use();
    CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes[0], &kernel));
    kernel = Builder::raising(other.memory, count, by, arguments);
    by = 20;
    other.use();
    CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes[2], &kernel));
    launch();
    other.expect(22);
    // The copy.
    own.use();
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, nodes[1], other.other, own.memory, BYTES, cudaMemcpyDefault));
    launch();
    other.expect(520);
    other.expect(other.other, 2);
    own.use();
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, nodes[1], other.memory, own.memory, BYTES, cudaMemcpyDefault));
    // Nodes do nothing for a while.
    unsigned is_enabled;
    CHECK(cudaGraphNodeSetEnabled(exec, nodes[1], 0));
    CHECK(cudaGraphNodeGetEnabled(exec, nodes[1], &is_enabled));
    EXPECT(is_enabled == 0);
    launch();
    other.expect(520);
    CHECK(cudaGraphNodeSetEnabled(exec, nodes[1], 1));
    CHECK(cudaGraphNodeSetEnabled(exec, nodes[2], 0));
    launch();
    other.expect(2);
    CHECK(cudaGraphNodeSetEnabled(exec, nodes[2], 1));
    // All at once.
    cudaGraphExecUpdateResultInfo info;
    cudaGraph_t changed = build(3, 30, other.other, others);
    CHECK(cudaGraphExecUpdate(exec, changed, &info));
    EXPECT(info.result == cudaGraphExecUpdateSuccess);
    CHECK(cudaGraphDestroy(changed));
    launch();
    other.expect(530);
    other.expect(other.other, 3);
    own.expect(3);
    // Of another shape.
    Builder builder;
    builder.raise(other, 1, {builder.raise(own, 1)});
    EXPECT(cudaGraphExecUpdate(exec, builder.graph, &info) == cudaErrorGraphExecUpdateFailure);
    EXPECT(info.result == cudaGraphExecUpdateErrorTopologyChanged);
    cudaGetLastError();
    CHECK(cudaGraphDestroy(builder.graph));
    launch();
    other.expect(other.other, 3);
    // The graph itself, which the executable does not follow.
    by = 4;
    own.use();
    kernel = Builder::raising(own.memory, count, by, arguments);
    CHECK(cudaGraphKernelNodeSetParams(nodes[0], &kernel));
    launch();
    own.expect(3);
    cudaGraphExec_t second = instantiated(graph);
    CHECK(cudaGraphExecDestroy(exec));
    exec = second;
    launch();
    other.expect(14);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

// Graphs in graphs, on both devices, and copies of graphs.
static void children(int here, int there) {
    Work own(here), other(there);
    auto inside = [&](unsigned first, unsigned second) {
        Builder inner;
        cudaGraphNode_t node = inner.raise(own, first);
        own.use();
        inner.raise(other, second, {inner.copy(other.memory, own.memory, {node})});
        return inner.graph;
    };
    cudaGraph_t inner = inside(1, 10);
    Builder outer;
    cudaGraphNode_t first = outer.child(inner);
    own.use();
    cudaGraphNode_t back = outer.copy(own.memory, other.memory, {first});
    outer.child(inner, {back});
    CHECK(cudaGraphDestroy(inner));
    cudaGraph_t copied;
    CHECK(cudaGraphClone(&copied, outer.graph));
    for (cudaGraph_t graph : {outer.graph, copied}) {
        cudaGraphExec_t exec = instantiated(graph);
        own.fill(0);
        own.use();
        CHECK(cudaGraphLaunch(exec, own.stream));
        own.expect(12);
        other.expect(22);
        if (graph == outer.graph) {
            cudaGraph_t replaced = inside(3, 30);
            CHECK(cudaGraphExecChildGraphNodeSetParams(exec, first, replaced));
            CHECK(cudaGraphDestroy(replaced));
            own.fill(0);
            own.use();
            CHECK(cudaGraphLaunch(exec, own.stream));
            own.expect(34);
            other.expect(44);
        }
        CHECK(cudaGraphExecDestroy(exec));
    }
    CHECK(cudaGraphDestroy(outer.graph));
    CHECK(cudaGraphDestroy(copied));
}

// Functions of the program, events, and memory of the program that one device writes and the other
// reads.
static void the_rest(int here, int there) {
    Work own(here), other(there);
    unsigned* pinned;
    own.use();
    CHECK(cudaMallocHost(&pinned, BYTES));
    std::atomic<unsigned> calls{0};
    Builder builder;
    cudaHostNodeParams host = {count_one, &calls};
    cudaGraphNode_t begin, out, called, in, recorded, waited;
    CHECK(cudaGraphAddHostNode(&begin, builder.graph, nullptr, 0, &host));
    cudaGraphNode_t raised = builder.raise(own, 1, {begin});
    own.use();
    out = builder.copy(pinned, own.memory, {raised});
    CHECK(cudaGraphAddHostNode(&called, builder.graph, &out, 1, &host));
    other.use();
    in = builder.copy(other.memory, pinned, {called});
    raised = builder.raise(other, 1, {in});
    CHECK(cudaGraphAddEventRecordNode(&recorded, builder.graph, &raised, 1, other.event_inside));
    CHECK(cudaGraphAddEventWaitNode(&waited, builder.graph, &recorded, 1, own.event));
    CHECK(cudaGraphAddHostNode(&called, builder.graph, &waited, 1, &host));
    cudaGraphExec_t exec = made_of(builder.graph);
    own.fill(0);
    for (unsigned round = 0; round < 10; round++) {
        own.record();
        CHECK(cudaGraphLaunch(exec, own.stream));
        // A stream of the program waits for what the graph records.
        CHECK(cudaStreamWaitEvent(own.stream, other.event_inside, 0));
    }
    own.expect(10);
    other.expect(11);
    EXPECT(calls == 30);
    other.use();
    CHECK(cudaEventSynchronize(other.event_inside));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFreeHost(pinned));
    // Memory that the program and a device share.
    unsigned* managed;
    other.use();
    CHECK(cudaMallocManaged(&managed, BYTES));
    for (size_t i = 0; i < COUNT; i++) managed[i] = unsigned(i) * 3 + 9;
    own.use();
    Builder sharing;
    sharing.raise(own, 1, {sharing.copy(own.memory, managed)});
    exec = made_of(sharing.graph);
    CHECK(cudaGraphLaunch(exec, own.stream));
    own.expect(10);
    CHECK(cudaGraphExecDestroy(exec));
    other.use();
    CHECK(cudaFree(managed));
    // A graph of one device, in a stream of the other one.
    own.use();
    Builder single;
    single.raise(own, 5);
    exec = made_of(single.graph);
    own.fill(0);
    own.record();
    other.wait_for(own);
    for (unsigned round = 0; round < 5; round++) {
        CHECK(cudaGraphLaunch(exec, other.stream));
        other.copy_from(own, other.stream);
    }
    other.expect(25);
    CHECK(cudaGraphExecDestroy(exec));
}

// Memory that a graph has while it runs, and nodes that run as a condition says.
static void bound(int here, int there) {
    Work own(here), other(there);
    cudaGraph_t graph;
    unsigned *early, *late;
    own.use();
    CHECK(cudaStreamBeginCapture(own.stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMallocAsync(reinterpret_cast<void**>(&early), BYTES, own.stream));
    CHECK(cudaMemcpyAsync(early, own.memory, BYTES, cudaMemcpyDefault, own.stream));
    own.record();
    other.wait_for(own);
    CHECK(cudaMemcpyPeerAsync(other.memory, there, early, here, BYTES, other.stream));
    other.raise(10);
    other.record();
    own.wait_for(other);
    own.use();
    CHECK(cudaMallocAsync(reinterpret_cast<void**>(&late), BYTES, own.stream));
    CHECK(cudaMemcpyPeerAsync(late, here, other.memory, there, BYTES, own.stream));
    CHECK(cudaFreeAsync(early, own.stream));
    CHECK(cudaMemcpyAsync(own.memory, late, BYTES, cudaMemcpyDefault, own.stream));
    CHECK(cudaFreeAsync(late, own.stream));
    own.raise(100);
    CHECK(cudaStreamEndCapture(own.stream, &graph));
    cudaGraphExec_t exec = made_of(graph);
    own.fill(0);
    for (unsigned round = 0; round < 5; round++) CHECK(cudaGraphLaunch(exec, own.stream));
    own.expect(5 * 110);
    other.expect(4 * 110 + 10);
    CHECK(cudaGraphExecDestroy(exec));

    Builder builder;
    cudaGraphConditionalHandle condition;
    own.use();
    CHECK(cudaGraphConditionalHandleCreate(&condition, builder.graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = condition;
    params.conditional.type = cudaGraphCondTypeIf;
    params.conditional.size = 1;
    cudaGraphNode_t first = builder.raise(own, 1), node;
    own.use();
    CHECK(cudaGraphAddNode(&node, builder.graph, &first, nullptr, 1, &params));
    Builder body;
    CHECK(cudaGraphDestroy(body.graph));
    body.graph = params.conditional.phGraph_out[0];
    body.raise(own, 10);
    own.use();
    builder.raise(other, 100, {builder.copy(other.memory, own.memory, {node})});
    exec = instantiated(builder.graph);
    own.fill(0);
    for (unsigned round = 0; round < 3; round++) CHECK(cudaGraphLaunch(exec, own.stream));
    own.expect(33);
    other.expect(133);
    // Outside the body, a node is changed as in any graph.
    size_t count = COUNT;
    unsigned by = 5;
    void* arguments[3];
    cudaKernelNodeParams kernel = Builder::raising(own.memory, count, by, arguments);
    own.use();
    CHECK(cudaGraphExecKernelNodeSetParams(exec, first, &kernel));
    CHECK(cudaGraphLaunch(exec, own.stream));
    own.expect(48);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(builder.graph));
}

// Threads launch graphs of their own, and one that they share.
static void at_once(int here, int there) {
    struct Own {
        Work own, other;
        cudaGraphExec_t exec;
    };
    Work own(here), other(there);
    cudaGraphExec_t shared = made_of(captured(own, other));
    own.fill(0);
    own.finish();
    std::vector<Own*> all;
    for (int thread = 0; thread < 4; thread++) {
        int first = thread % 2 ? there : here, second = thread % 2 ? here : there;
        all.push_back(new Own{Work(first), Work(second), nullptr});
        all.back()->exec = made_of(captured(all.back()->own, all.back()->other));
    }
    std::mutex turn;
    std::vector<std::thread> threads;
    for (Own* one : all) {
        threads.emplace_back([=, &turn] {
            one->own.fill(0);
            for (unsigned round = 0; round < 20; round++) {
                one->own.use();
                CHECK(cudaGraphLaunch(one->exec, one->own.stream));
                if (round % 4 == 0) {
                    std::lock_guard<std::mutex> alone(turn);
                    CHECK(cudaGraphLaunch(shared, one->own.stream));
                }
                one->own.raise(1000);
            }
            one->own.expect(20 * 1111);
            one->other.expect(19 * 1111 + 11);
        });
    }
    for (std::thread& thread : threads) thread.join();
    own.expect(4 * 5 * 111);
    for (Own* one : all) {
        CHECK(cudaGraphExecDestroy(one->exec));
        delete one;
    }
    CHECK(cudaGraphExecDestroy(shared));
}

// The second device's server goes while a launch waits for it.
static void lost(int here, int there) {
    Work own(here), other(there);
    cudaGraphExec_t exec = made_of(captured(own, other));
    Door never;
    own.fill(3);
    own.finish();
    // What the graph has on the second device comes behind this.
    Builder builder;
    cudaHostNodeParams host = {Door::wait, &never};
    cudaGraphNode_t raised = builder.raise(other, 1), waits;
    CHECK(cudaGraphAddHostNode(&waits, builder.graph, &raised, 1, &host));
    own.use();
    builder.raise(own, 1, {waits});
    cudaGraphExec_t stuck = made_of(builder.graph);
    own.use();
    CHECK(cudaGraphLaunch(stuck, own.stream));
    CHECK(cudaGraphLaunch(exec, own.stream));
    own.raise(1);
    EXPECT(cudaStreamQuery(own.stream) == cudaErrorNotReady);
    printf("waiting\n");
    fflush(stdout);
    own.use();
    // The first wait tells that what was to come from there did not.
    EXPECT(cudaStreamSynchronize(own.stream) == cudaErrorDevicesUnavailable);
    cudaGetLastError();
    while (cudaStreamSynchronize(own.stream) != cudaSuccess) cudaGetLastError();
    // What came from nowhere is as it was.
    own.expect(3 + 1 + 1 + 100 + 1);
    // The first server may know of it before this program does.
    other.use();
    EXPECT(cudaDeviceSynchronize() == cudaErrorDevicesUnavailable);
    cudaGetLastError();
    // A launch that needs the server is refused, and leaves nothing behind.
    own.use();
    EXPECT(cudaGraphLaunch(exec, own.stream) == cudaErrorDevicesUnavailable);
    cudaGetLastError();
    while (cudaStreamSynchronize(own.stream) != cudaSuccess) cudaGetLastError();
    own.fill(8);
    own.expect(8);
    CHECK(cudaGraphExecDestroy(exec));
    own.raise(1);
    own.expect(9);
    printf("the other server goes on\n");
    fflush(stdout);
    // What belongs to the lost device cannot be freed.
    _exit(0);
}

int main(int argc, char** argv) {
    // What it has said is there even if it does not end.
    setvbuf(stdout, nullptr, _IOLBF, 0);
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    if (argc > 1 && std::string(argv[1]) == "lost") lost(0, devices - 1);
    int first_device = argc > 2 ? atoi(argv[1]) : 0;
    int second_device = argc > 2 ? atoi(argv[2]) : devices - 1;
    EXPECT(first_device != second_device);
    struct Part {
        const char* name;
        void (*run)(int, int);
    };
    const Part parts[] = {
        {"capture", capture}, {"fills", fills}, {"order", in_order},   {"pipeline", pipeline}, {"shapes", shapes},
        {"updates", updates}, {"children", children}, {"the rest", the_rest}, {"memory and conditions", bound},
        {"threads", at_once},
    };
    for (const Part& part : parts) {
        if (argc > 3 && std::string(argv[3]) != part.name) continue;
        part.run(first_device, second_device);
        part.run(second_device, first_device);
        printf("%s\n", part.name);
        fflush(stdout);
    }
    printf("crossing graphs: done\n");
    return outcome();
}
