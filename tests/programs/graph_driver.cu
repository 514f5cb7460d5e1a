// Graphs through the driver API: the forms that the runtime does not use, batches of memory
// operations, a launch that is captured, kernels that start early, a drawing.
#include "driver.h"
#include "graphs.h"

#include <cstring>
#include <string>
#include <unistd.h>

static CUfunction function() {
    cudaFunction_t function;
    CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<void*>(add)));
    return function;
}

static void buffers() {
    DeviceArray<int> data(COUNT);
    data.zero();
    CUgraph graph;
    CHECK_DRIVER(DRIVER(cuGraphCreate)(&graph, 0));
    // Parameters in one buffer, as the program has laid them out.
    struct {
        int* data;
        int count;
        int amount;
    } buffer = {data.get(), COUNT, 6};
    size_t size = sizeof buffer;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    CUDA_KERNEL_NODE_PARAMS params = {};
    params.func = function();
    params.gridDimX = BLOCKS;
    params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = 128;
    params.blockDimY = params.blockDimZ = 1;
    params.extra = extra;
    CUgraphNode first, second;
    CHECK_DRIVER(DRIVER(cuGraphAddKernelNode)(&first, graph, nullptr, 0, &params));
    CHECK_DRIVER(DRIVER(cuGraphAddKernelNode)(&second, graph, &first, 1, &params));
    CUlaunchAttributeValue value;
    std::memset(&value, 0, sizeof value);
    CHECK_DRIVER(DRIVER(cuGraphKernelNodeSetAttribute)(first, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    CHECK_DRIVER(DRIVER(cuGraphKernelNodeCopyAttributes)(second, first));
    CHECK_DRIVER(DRIVER(cuGraphKernelNodeGetAttribute)(second, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    EXPECT(value.priority == 0);
    CUgraphExec exec;
    CHECK_DRIVER(DRIVER(cuGraphInstantiate)(&exec, graph, 0));
    CUstream stream;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cudaDeviceSynchronize());
    CHECK_DRIVER(DRIVER(cuGraphLaunch)(exec, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    EXPECT(all(data.download(), 12));

    std::string path = "/tmp/outboard_graph_" + std::to_string(getpid()) + ".dot";
    CHECK_DRIVER(DRIVER(cuGraphDebugDotPrint)(graph, path.c_str(), CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
    FILE* file = fopen(path.c_str(), "r");
    EXPECT(file != nullptr);
    char line[16] = {};
    EXPECT(fgets(line, sizeof line, file) != nullptr && std::strncmp(line, "digraph", 7) == 0);
    fclose(file);
    unlink(path.c_str());
    CHECK_DRIVER(DRIVER(cuGraphExecDestroy)(exec));
    CHECK_DRIVER(DRIVER(cuGraphDestroy)(graph));
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    printf("buffers: right\n");
}

// A graph waits for a word that a stream beside it writes, and writes another.
static void memory_operations() {
    DeviceArray<unsigned> words(2);
    words.zero();
    CHECK(cudaDeviceSynchronize());
    CUcontext context;
    CHECK_DRIVER(DRIVER(cuCtxGetCurrent)(&context));
    CUdeviceptr first = reinterpret_cast<CUdeviceptr>(words.get()), second = first + 4;
    CUstreamBatchMemOpParams operations[2];
    std::memset(operations, 0, sizeof operations);
    operations[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    operations[0].waitValue.address = first;
    operations[0].waitValue.value = 5;
    operations[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    operations[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operations[1].writeValue.address = second;
    operations[1].writeValue.value = 77;
    CUDA_BATCH_MEM_OP_NODE_PARAMS params = {};
    params.ctx = context;
    params.count = 2;
    params.paramArray = operations;
    CUgraph graph;
    CHECK_DRIVER(DRIVER(cuGraphCreate)(&graph, 0));
    CUgraphNode node;
    CHECK_DRIVER(DRIVER(cuGraphAddBatchMemOpNode)(&node, graph, nullptr, 0, &params));
    CUDA_BATCH_MEM_OP_NODE_PARAMS back = {};
    CHECK_DRIVER(DRIVER(cuGraphBatchMemOpNodeGetParams)(node, &back));
    EXPECT(back.count == 2 && back.paramArray[1].writeValue.value == 77);
    CUgraphExec exec;
    CHECK_DRIVER(DRIVER(cuGraphInstantiate)(&exec, graph, 0));
    CUstream waiting, writing;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&waiting, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&writing, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(DRIVER(cuGraphLaunch)(exec, waiting));
    EXPECT(DRIVER(cuStreamQuery)(waiting) == CUDA_ERROR_NOT_READY);
    CHECK_DRIVER(DRIVER(cuStreamWriteValue32)(writing, first, 5, 0));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(waiting));
    EXPECT(words.download()[1] == 77);
    CHECK_DRIVER(DRIVER(cuGraphExecDestroy)(exec));
    CHECK_DRIVER(DRIVER(cuGraphDestroy)(graph));
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(waiting));
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(writing));
    printf("memory operations: right\n");
}

int main() {
    CHECK(cudaFree(nullptr));
    buffers();
    memory_operations();
    return outcome();
}
