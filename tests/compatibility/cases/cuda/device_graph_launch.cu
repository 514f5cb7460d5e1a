//: title = "graphs that kernels launch: fire and forget, tail, and a graph that launches itself again"
//: nvcc = ["-rdc=true", "-lcudadevrt"]
#include "_check.h"
#include <vector>

// What the kernels of the launched graph do.
__global__ void add(int *values, int n, int amount) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += amount;
}

__global__ void launch(cudaGraphExec_t graph, bool tail, int *outcome) {
    cudaError_t status = cudaGraphLaunch(graph, tail ? cudaStreamGraphTailLaunch : cudaStreamGraphFireAndForget);
    *outcome = static_cast<int>(status);
}

// Launches its own graph again, so many times.
__global__ void again(int *rounds, int *left) {
    ++*rounds;
    if (--*left > 0) cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
}

template <typename Record>
static cudaGraphExec_t graph_of(cudaStream_t stream, unsigned flags, Record record) {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    record();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, flags));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

int main() {
    const int n = 10000;
    int *values, *outcome, *counters;
    CHECK(cudaMalloc(&values, n * sizeof(int)));
    CHECK(cudaMalloc(&outcome, sizeof(int)));
    CHECK(cudaMalloc(&counters, 2 * sizeof(int)));
    CHECK(cudaMemset(values, 0, n * sizeof(int)));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());

    cudaGraphExec_t work = graph_of(stream, cudaGraphInstantiateFlagDeviceLaunch, [&] {
        add<<<(n + 255) / 256, 256, 0, stream>>>(values, n, 3);
        add<<<(n + 255) / 256, 256, 0, stream>>>(values, n, 4);
    });
    CHECK(cudaGraphUpload(work, stream));
    std::vector<int> host(n);
    for (bool tail : {false, true}) {
        cudaGraphExec_t launcher = graph_of(stream, 0, [&] { launch<<<1, 1, 0, stream>>>(work, tail, outcome); });
        for (int round = 0; round < 3; round++) {
            CHECK(cudaGraphLaunch(launcher, stream));
            CHECK(cudaStreamSynchronize(stream));
            int said = -1;
            CHECK(cudaMemcpy(&said, outcome, sizeof said, cudaMemcpyDeviceToHost));
            if (said != 0) printf("the kernel's launch: %d\n", said);
            require(said == 0, "the kernel's launch succeeded");
        }
        CHECK(cudaGraphExecDestroy(launcher));
        CHECK(cudaMemcpy(host.data(), values, n * sizeof(int), cudaMemcpyDeviceToHost));
        require(host[0] == (tail ? 42 : 21) && host[n - 1] == host[0], "each launch ran once");
        exact(tail ? "tail" : "fire and forget", host.data(), n * sizeof(int));
    }

    int start[2] = {0, 5};
    CHECK(cudaMemcpy(counters, start, sizeof start, cudaMemcpyHostToDevice));
    cudaGraphExec_t loop = graph_of(stream, cudaGraphInstantiateFlagDeviceLaunch, [&] {
        again<<<1, 1, 0, stream>>>(counters, counters + 1);
    });
    CHECK(cudaGraphUpload(loop, stream));
    CHECK(cudaGraphLaunch(loop, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(start, counters, sizeof start, cudaMemcpyDeviceToHost));
    require(start[0] == 5, "the graph launched itself four times");
    exact("loop", start, sizeof start);
    CHECK(cudaGraphExecDestroy(loop));
    CHECK(cudaGraphExecDestroy(work));
    return 0;
}
