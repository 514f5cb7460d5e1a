// Memory that graphs allocate and free, by nodes and by capture; user objects that they keep alive.
#include "graphs.h"

#include <atomic>
#include <chrono>
#include <thread>

static void captured() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    DeviceArray<int> out(COUNT);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    int* memory = nullptr;
    CHECK(cudaMallocAsync(&memory, COUNT * sizeof(int), stream));
    CHECK(cudaMemsetAsync(memory, 0, COUNT * sizeof(int), stream));
    add<<<BLOCKS, 128, 0, stream>>>(memory, COUNT, 4);
    CHECK(cudaMemcpyAsync(out.get(), memory, out.bytes(), cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaFreeAsync(memory, stream));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    printf("captured: %zu nodes\n", nodes);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        CHECK(cudaMemsetAsync(out.get(), 0xff, out.bytes(), stream));
        CHECK(cudaGraphLaunch(exec, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(all(out.download(), 4));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceGraphMemTrim(0));
}

__global__ void square(const float* in, float* out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = in[i] * in[i];
}

__global__ void negate(const float* in, float* out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = -in[i];
}

// Two streams allocate, copy and free; the second stream and the events are gone before the capture
// ends.
static void forked() {
    cudaStream_t stream, second;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::vector<float> input(COUNT), squares(COUNT), negated(COUNT);
    for (int i = 0; i < COUNT; i++) input[i] = static_cast<float>(i % 97);
    size_t bytes = COUNT * sizeof(float);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    cudaEvent_t squared, used, freed;
    CHECK(cudaEventCreate(&squared));
    CHECK(cudaEventCreate(&used));
    CHECK(cudaEventCreate(&freed));
    float *in, *out, *minus;
    CHECK(cudaMallocAsync(&in, bytes, stream));
    CHECK(cudaMallocAsync(&out, bytes, stream));
    CHECK(cudaMemcpyAsync(in, input.data(), bytes, cudaMemcpyHostToDevice, stream));
    square<<<BLOCKS, 128, 0, stream>>>(in, out, COUNT);
    CHECK(cudaEventRecord(squared, stream));
    CHECK(cudaStreamWaitEvent(second, squared, 0));
    CHECK(cudaMemcpyAsync(squares.data(), out, bytes, cudaMemcpyDeviceToHost, second));
    CHECK(cudaFreeAsync(in, stream));
    CHECK(cudaMallocAsync(&minus, bytes, stream));
    negate<<<BLOCKS, 128, 0, stream>>>(out, minus, COUNT);
    CHECK(cudaEventRecord(used, stream));
    CHECK(cudaMemcpyAsync(negated.data(), minus, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(minus, stream));
    CHECK(cudaStreamWaitEvent(second, used, 0));
    CHECK(cudaFreeAsync(out, second));
    CHECK(cudaEventRecord(freed, second));
    CHECK(cudaStreamWaitEvent(stream, freed, 0));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaEventDestroy(squared));
    CHECK(cudaEventDestroy(used));
    CHECK(cudaEventDestroy(freed));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    printf("forked: %zu nodes\n", nodes);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) squares[i] = negated[i] = 0;
        input[1] = static_cast<float>(round + 5);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        bool right = true;
        for (int i = 0; i < COUNT; i++) {
            right = right && squares[i] == input[i] * input[i] && negated[i] == -input[i] * input[i];
        }
        EXPECT(right);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaStreamDestroy(stream));
}

static cudaMemAllocNodeParams of_device(size_t bytes) {
    cudaMemAllocNodeParams allocation = {};
    allocation.poolProps.allocType = cudaMemAllocationTypePinned;
    allocation.poolProps.location.type = cudaMemLocationTypeDevice;
    allocation.poolProps.location.id = 0;
    allocation.bytesize = bytes;
    return allocation;
}

// A graph allocates, the program frees: each launch gives the memory anew, at the same address.
static void outliving() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemAllocNodeParams allocation = of_device(COUNT * sizeof(int));
    cudaGraphNode_t allocates, fills;
    CHECK(cudaGraphAddMemAllocNode(&allocates, graph, nullptr, 0, &allocation));
    EXPECT(allocation.dptr != nullptr);
    cudaMemAllocNodeParams back = {};
    CHECK(cudaGraphMemAllocNodeGetParams(allocates, &back));
    EXPECT(back.dptr == allocation.dptr && back.bytesize == allocation.bytesize);
    cudaMemsetParams fill = {};
    fill.dst = allocation.dptr;
    fill.value = 9;
    fill.elementSize = 4;
    fill.width = COUNT;
    fill.height = 1;
    CHECK(cudaGraphAddMemsetNode(&fills, graph, &allocates, 1, &fill));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<int> values(COUNT);
    for (int round = 0; round < 2; round++) {
        CHECK(cudaGraphLaunch(exec, stream));
        add<<<BLOCKS, 128, 0, stream>>>(static_cast<int*>(allocation.dptr), COUNT, 1);
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpy(values.data(), allocation.dptr, allocation.bytesize, cudaMemcpyDeviceToHost));
        EXPECT(all(values, 10));
        CHECK(cudaFreeAsync(allocation.dptr, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    printf("outliving: right\n");
}

// Memory that is freed and allocated again inside a graph may have one address for both. The graph
// is gone before its executable runs; what the second allocation gives is freed at once, in a
// stream, and by another graph.
static void reused() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t first, frees, second, fills;
    cudaMemAllocNodeParams one = of_device(COUNT * sizeof(int)), two = one;
    CHECK(cudaGraphAddMemAllocNode(&first, graph, nullptr, 0, &one));
    CHECK(cudaGraphAddMemFreeNode(&frees, graph, &first, 1, one.dptr));
    CHECK(cudaGraphAddMemAllocNode(&second, graph, &frees, 1, &two));
    cudaMemsetParams fill = {};
    fill.dst = two.dptr;
    fill.value = 3;
    fill.elementSize = 4;
    fill.width = COUNT;
    fill.height = 1;
    CHECK(cudaGraphAddMemsetNode(&fills, graph, &second, 1, &fill));
    cudaGraphExec_t exec, freeing;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    cudaGraph_t other;
    CHECK(cudaGraphCreate(&other, 0));
    CHECK(cudaGraphAddMemFreeNode(&frees, other, nullptr, 0, two.dptr));
    CHECK(cudaGraphInstantiate(&freeing, other, 0));
    CHECK(cudaGraphDestroy(other));
    std::vector<int> values(COUNT);
    for (int round = 0; round < 4; round++) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaMemcpyAsync(values.data(), two.dptr, two.bytesize, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(all(values, 3));
        if (round == 0) CHECK(cudaFree(two.dptr));
        if (round == 1) CHECK(cudaFreeAsync(two.dptr, stream));
        if (round == 2) CHECK(cudaGraphLaunch(freeing, stream));
    }
    // What a launch has allocated outlives the executable.
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphExecDestroy(freeing));
    CHECK(cudaMemcpy(values.data(), two.dptr, two.bytesize, cudaMemcpyDeviceToHost));
    EXPECT(all(values, 3));
    CHECK(cudaFree(two.dptr));
    CHECK(cudaStreamDestroy(stream));
    printf("used again: right\n");
}

static std::atomic<int> destroyed{0};

static void destroy(void*) { destroyed++; }

static bool soon(int wanted) {
    for (int i = 0; i < 500 && destroyed != wanted; i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return destroyed == wanted;
}

static void objects() {
    cudaUserObject_t object;
    CHECK(cudaUserObjectCreate(&object, nullptr, destroy, 1, cudaUserObjectNoDestructorSync));
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    cudaGraphExec_t exec;
    cudaGraphNode_t empty;
    CHECK(cudaGraphAddEmptyNode(&empty, graph, nullptr, 0));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    EXPECT(destroyed == 0);
    CHECK(cudaGraphExecDestroy(exec));
    EXPECT(soon(1));
    CHECK(cudaUserObjectCreate(&object, nullptr, destroy, 2, cudaUserObjectNoDestructorSync));
    CHECK(cudaUserObjectRetain(object, 1));
    CHECK(cudaUserObjectRelease(object, 2));
    EXPECT(destroyed == 1);
    CHECK(cudaUserObjectRelease(object, 1));
    EXPECT(soon(2));
    printf("user objects: right\n");
}

int main() {
    captured();
    forked();
    outliving();
    reused();
    objects();
    return outcome();
}
