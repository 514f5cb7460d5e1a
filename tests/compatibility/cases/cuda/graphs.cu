//: title = "graphs: capture with a fork, explicit nodes, update of parameters, host functions, a copy from pinned memory"
#include "_check.h"
#include <vector>

__global__ void axpy(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

static void CUDART_CB bump(void *data) { ++*static_cast<int *>(data); }

int main() {
    const int n = 4096;
    float *x, *y, *pinned;
    int called = 0;
    CHECK(cudaMalloc(&x, n * sizeof(float)));
    CHECK(cudaMalloc(&y, n * sizeof(float)));
    CHECK(cudaMallocHost(&pinned, n * sizeof(float)));
    CHECK(cudaMemset(y, 0, n * sizeof(float)));
    cudaStream_t main_stream, side;
    cudaEvent_t fork, join;
    CHECK(cudaStreamCreate(&main_stream));
    CHECK(cudaStreamCreate(&side));
    CHECK(cudaEventCreate(&fork));
    CHECK(cudaEventCreate(&join));

    CHECK(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemcpyAsync(x, pinned, n * sizeof(float), cudaMemcpyHostToDevice, main_stream));
    CHECK(cudaEventRecord(fork, main_stream));
    CHECK(cudaStreamWaitEvent(side, fork));
    axpy<<<n / 256, 256, 0, side>>>(y, x, 1.0f, n);
    CHECK(cudaLaunchHostFunc(side, bump, &called));
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(main_stream, join));
    axpy<<<n / 256, 256, 0, main_stream>>>(y, x, 0.5f, n);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamEndCapture(main_stream, &graph));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    printf("nodes: %zu\n", nodes);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<float> host(n);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < n; i++) pinned[i] = float(i % 17 + round * 100);
        CHECK(cudaGraphLaunch(exec, main_stream));
        CHECK(cudaStreamSynchronize(main_stream));
        CHECK(cudaMemcpy(host.data(), y, n * sizeof(float), cudaMemcpyDeviceToHost));
        exact("replayed", host.data(), n * sizeof(float));
    }
    printf("host function called: %d\n", called);

    // The same by hand, with other parameters put in afterwards.
    cudaGraph_t built;
    cudaGraphNode_t clear, add;
    CHECK(cudaGraphCreate(&built, 0));
    cudaMemsetParams zero = {};
    zero.dst = y;
    zero.elementSize = 4;
    zero.width = n;
    zero.height = 1;
    CHECK(cudaGraphAddMemsetNode(&clear, built, nullptr, 0, &zero));
    float factor = 2.0f;
    int count = n;
    void *parameters[] = {&y, &x, &factor, &count};
    cudaKernelNodeParams kernel = {};
    kernel.func = reinterpret_cast<void *>(axpy);
    kernel.gridDim = dim3(n / 256);
    kernel.blockDim = dim3(256);
    kernel.kernelParams = parameters;
    CHECK(cudaGraphAddKernelNode(&add, built, &clear, 1, &kernel));
    cudaGraphExec_t second;
    CHECK(cudaGraphInstantiate(&second, built, 0));
    for (float next : {2.0f, 3.0f}) {
        factor = next;
        CHECK(cudaGraphExecKernelNodeSetParams(second, add, &kernel));
        CHECK(cudaGraphLaunch(second, main_stream));
        CHECK(cudaMemcpyAsync(host.data(), y, n * sizeof(float), cudaMemcpyDeviceToHost, main_stream));
        CHECK(cudaStreamSynchronize(main_stream));
        exact("built", host.data(), n * sizeof(float));
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphExecDestroy(second));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(built));
}
