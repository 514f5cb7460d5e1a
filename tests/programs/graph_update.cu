// Executables that change: single nodes, a whole graph of the same shape, nodes switched off.
#include "graphs.h"

static cudaGraph_t captured(cudaStream_t stream, int* data, int fill, int amount, int factor, bool more) {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemsetAsync(data, fill, COUNT * sizeof(int), stream));
    add<<<BLOCKS, 128, 0, stream>>>(data, COUNT, amount);
    multiply<<<BLOCKS, 128, 0, stream>>>(data, COUNT, factor);
    if (more) add<<<BLOCKS, 128, 0, stream>>>(data, COUNT, amount);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    return graph;
}

int main() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    DeviceArray<int> data(COUNT), other(COUNT);
    CHECK(cudaDeviceSynchronize());
    cudaGraph_t graph = captured(stream, data.get(), 0, 2, 3, false);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    auto launch = [&] {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
    };
    launch();
    EXPECT(all(data.download(), 6));

    // A graph of the same shape gives the executable its parameters.
    cudaGraph_t again = captured(stream, data.get(), 1, 4, 5, false);
    cudaGraphExecUpdateResultInfo info = {};
    CHECK(cudaGraphExecUpdate(exec, again, &info));
    EXPECT(info.result == cudaGraphExecUpdateSuccess);
    launch();
    EXPECT(all(data.download(), (0x01010101 + 4) * 5));
    CHECK(cudaGraphDestroy(again));

    // One of another shape does not, and leaves it as it was.
    cudaGraph_t longer = captured(stream, data.get(), 0, 1, 1, true);
    info = {};
    EXPECT_ERROR(cudaGraphExecUpdate(exec, longer, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT(info.result == cudaGraphExecUpdateErrorTopologyChanged);
    CHECK(cudaGraphDestroy(longer));
    (void)cudaGetLastError();
    launch();
    EXPECT(all(data.download(), (0x01010101 + 4) * 5));

    // Single nodes, by those of the graph it was made of.
    size_t count = 3;
    cudaGraphNode_t nodes[3];
    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    EXPECT(count == 3);
    cudaGraphNode_t fill_node = nullptr, kernels[2];
    int found = 0;
    for (cudaGraphNode_t node : nodes) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(node, &type));
        if (type == cudaGraphNodeTypeMemset) {
            fill_node = node;
        } else {
            kernels[found++] = node;
        }
    }
    EXPECT(found == 2 && fill_node != nullptr);
    cudaKernelNodeParams first, second;
    CHECK(cudaGraphKernelNodeGetParams(kernels[0], &first));
    CHECK(cudaGraphKernelNodeGetParams(kernels[1], &second));
    // The order of a graph's nodes is not promised.
    bool swapped = *static_cast<int*>(first.kernelParams[2]) == 3;
    cudaKernelNodeParams params = swapped ? second : first;
    int* target = data.get();
    int elements = COUNT, amount = 70;
    void* args[] = {&target, &elements, &amount};
    params.kernelParams = args;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, kernels[swapped ? 1 : 0], &params));
    cudaMemsetParams fill = {};
    CHECK(cudaGraphMemsetNodeGetParams(fill_node, &fill));
    fill.value = 0;
    CHECK(cudaGraphExecMemsetNodeSetParams(exec, fill_node, &fill));
    launch();
    EXPECT(all(data.download(), 70 * 5));
    // The graph itself has not changed.
    cudaGraphExec_t fresh;
    CHECK(cudaGraphInstantiate(&fresh, graph, 0));
    CHECK(cudaGraphLaunch(fresh, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(all(data.download(), 6));
    CHECK(cudaGraphExecDestroy(fresh));

    // Switched off, a node does nothing.
    unsigned enabled = 2;
    CHECK(cudaGraphNodeGetEnabled(exec, kernels[0], &enabled));
    EXPECT(enabled == 1);
    CHECK(cudaGraphNodeSetEnabled(exec, kernels[swapped ? 0 : 1], 0));
    CHECK(cudaGraphNodeGetEnabled(exec, kernels[swapped ? 0 : 1], &enabled));
    EXPECT(enabled == 0);
    launch();
    EXPECT(all(data.download(), 70));
    CHECK(cudaGraphNodeSetEnabled(exec, kernels[swapped ? 0 : 1], 1));
    launch();
    EXPECT(all(data.download(), 350));

    unsigned long long flags = 1;
    CHECK(cudaGraphExecGetFlags(exec, &flags));
    EXPECT(flags == 0);
    cudaGraphInstantiateParams instantiate = {};
    instantiate.flags = cudaGraphInstantiateFlagUpload;
    instantiate.uploadStream = stream;
    CHECK(cudaGraphInstantiateWithParams(&fresh, graph, &instantiate));
    EXPECT(instantiate.result_out == cudaGraphInstantiateSuccess);
    CHECK(cudaGraphLaunch(fresh, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(all(data.download(), 6));
    CHECK(cudaGraphExecDestroy(fresh));

    // Many updates in a row, each for the launches behind it.
    for (int i = 0; i < 100; i++) {
        amount = i;
        CHECK(cudaGraphExecKernelNodeSetParams(exec, kernels[swapped ? 1 : 0], &params));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaMemcpyAsync(other.get() + i, data.get(), sizeof(int), cudaMemcpyDeviceToDevice, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    auto values = other.download();
    for (int i = 0; i < 100; i++) EXPECT(values[i] == i * 5);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    printf("updates: right\n");
    return outcome();
}
