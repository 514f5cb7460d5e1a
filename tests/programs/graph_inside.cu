// A graph that moves into a node of another: its nodes are the executable's then, and are changed
// there. On a driver that cannot move graphs the program says so and is done.
#include "check.h"
#include "driver.h"

#if CUDA_VERSION < 12090
#error "this needs the toolkit of CUDA 12.9 or later"
#endif

static const int COUNT = 1000;

__global__ void add(int* data, int count, int amount) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[i] += amount;
}

// A row, described by nothing but what must be said.
static CUDA_MEMCPY3D row(const DeviceArray<int>& dst, const DeviceArray<int>& src, size_t bytes) {
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = reinterpret_cast<CUdeviceptr>(src.get());
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = reinterpret_cast<CUdeviceptr>(dst.get());
    copy.WidthInBytes = bytes;
    copy.Height = 1;
    copy.Depth = 1;
    return copy;
}

static CUgraphNode move_into(CUgraph graph, CUgraphNode* before, CUgraph inner) {
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = inner;
    params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    CUgraphNode node;
    CHECK_DRIVER(DRIVER(cuGraphAddNode)(&node, graph, before, nullptr, before ? 1 : 0, &params));
    return node;
}

static bool are(const std::vector<int>& values, int first, int wanted, int others) {
    for (int i = 0; i < COUNT; i++) {
        if (values[i] != (i < first ? wanted : others)) {
            printf("element %d is %d\n", i, values[i]);
            return false;
        }
    }
    return true;
}

int main() {
    int version = 0;
    CHECK(cudaDriverGetVersion(&version));
    if (version < 12090) {
        printf("this driver cannot move graphs\n");
        return 0;
    }
    CUcontext context;
    CHECK(cudaFree(nullptr));
    CHECK_DRIVER(DRIVER(cuCtxGetCurrent)(&context));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    DeviceArray<int> ones(COUNT), twos(COUNT), out(COUNT), other(COUNT);
    ones.upload(std::vector<int>(COUNT, 1));
    twos.upload(std::vector<int>(COUNT, 2));
    out.zero();
    other.zero();
    CHECK(cudaDeviceSynchronize());
    size_t bytes = out.bytes();

    // outer: inner (a copy, innermost (a kernel), a copy to the host)
    CUgraph outer, inner, innermost;
    CHECK_DRIVER(DRIVER(cuGraphCreate)(&outer, 0));
    CHECK_DRIVER(DRIVER(cuGraphCreate)(&inner, 0));
    CHECK_DRIVER(DRIVER(cuGraphCreate)(&innermost, 0));
    CUgraphNode copies, adds;
    CUDA_MEMCPY3D copy = row(out, ones, bytes);
    CHECK_DRIVER(DRIVER(cuGraphAddMemcpyNode)(&copies, inner, nullptr, 0, &copy, context));
    cudaFunction_t function;
    CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<void*>(add)));
    int *target = out.get(), count = COUNT, amount = 10;
    void* args[] = {&target, &count, &amount};
    CUDA_KERNEL_NODE_PARAMS kernel = {};
    kernel.func = function;
    kernel.gridDimX = (COUNT + 127) / 128;
    kernel.blockDimX = 128;
    kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.kernelParams = args;
    CHECK_DRIVER(DRIVER(cuGraphAddKernelNode)(&adds, innermost, nullptr, 0, &kernel));
    CUgraphNode child = move_into(inner, &copies, innermost);
    move_into(outer, nullptr, inner);
    // More may be added when it is there already.
    std::vector<int> host(COUNT);
    CUDA_MEMCPY3D back = row(out, out, bytes);
    back.dstMemoryType = CU_MEMORYTYPE_HOST;
    back.dstDevice = 0;
    back.dstHost = host.data();
    CUgraphNode brings;
    CHECK_DRIVER(DRIVER(cuGraphAddMemcpyNode)(&brings, inner, &child, 1, &back, context));

    CUgraphExec exec, second;
    CHECK_DRIVER(DRIVER(cuGraphInstantiate)(&exec, outer, 0));
    CHECK_DRIVER(DRIVER(cuGraphInstantiate)(&second, outer, 0));
    auto launch = [&](CUgraphExec which) {
        std::fill(host.begin(), host.end(), -1);
        CHECK_DRIVER(DRIVER(cuGraphLaunch)(which, stream));
        CHECK(cudaStreamSynchronize(stream));
    };
    launch(exec);
    EXPECT(are(host, COUNT, 11, 0));

    // Another source, then another target and size as well.
    copy = row(out, twos, bytes);
    CHECK_DRIVER(DRIVER(cuGraphExecMemcpyNodeSetParams)(exec, copies, &copy, context));
    amount = 20;
    CHECK_DRIVER(DRIVER(cuGraphExecKernelNodeSetParams)(exec, adds, &kernel));
    launch(exec);
    EXPECT(are(host, COUNT, 22, 0));
    launch(second);
    EXPECT(are(host, COUNT, 11, 0));
    out.zero();
    CHECK(cudaDeviceSynchronize());
    copy = row(other, twos, bytes / 2);
    CHECK_DRIVER(DRIVER(cuGraphExecMemcpyNodeSetParams)(exec, copies, &copy, context));
    launch(exec);
    EXPECT(are(host, COUNT, 20, 0) && are(other.download(), COUNT / 2, 2, 0));
    for (int round = 0; round < 4; round++) {
        copy = row(out, round % 2 ? ones : twos, bytes);
        CHECK_DRIVER(DRIVER(cuGraphExecMemcpyNodeSetParams)(exec, copies, &copy, context));
        launch(exec);
        EXPECT(are(host, COUNT, round % 2 ? 21 : 22, 0));
    }

    // The graph itself has not changed, and goes with the outer one.
    CHECK_DRIVER(DRIVER(cuGraphExecDestroy)(second));
    CHECK_DRIVER(DRIVER(cuGraphInstantiate)(&second, outer, 0));
    launch(second);
    EXPECT(are(host, COUNT, 11, 0));
    CHECK_DRIVER(DRIVER(cuGraphDestroy)(outer));
    launch(exec);
    EXPECT(are(host, COUNT, 21, 0));
    CHECK_DRIVER(DRIVER(cuGraphExecDestroy)(exec));
    CHECK_DRIVER(DRIVER(cuGraphExecDestroy)(second));
    CHECK(cudaStreamDestroy(stream));
    printf("moved graphs: right\n");
    return outcome();
}
