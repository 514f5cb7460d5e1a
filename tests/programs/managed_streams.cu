// Managed and mapped memory in what streams do by themselves: functions of the program, graphs,
// events between streams.
#include "check.h"

__global__ void add(int *data, size_t count, int value) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) data[i] += value;
}

struct Seen {
    int *data;
    int first, last;
};

static const size_t count = 100000;

// Runs between two kernels: it sees what the first has written, and the second sees what it writes.
static void look(void *argument) {
    Seen *seen = static_cast<Seen *>(argument);
    seen->first = seen->data[0];
    seen->last = seen->data[count - 1];
    seen->data[0] = 1000;
}

static void functions(int *data) {
    for (size_t i = 0; i < count; i++) data[i] = 1;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (int round = 0; round < 3; round++) {
        Seen seen = {data, -1, -1};
        data[0] = 1;
        add<<<16, 256, 0, stream>>>(data, count, 1);
        CHECK(cudaLaunchHostFunc(stream, look, &seen));
        add<<<16, 256, 0, stream>>>(data, count, 5);
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(seen.first == 2 && seen.last == 2 + 6 * round);
        EXPECT(data[0] == 1005 && data[count - 1] == 7 + 6 * round);
    }
    CHECK(cudaStreamDestroy(stream));
}

static void graphs(int *data, int *pinned) {
    for (size_t i = 0; i < count; i++) data[i] = pinned[i] = static_cast<int>(i);
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    add<<<16, 256, 0, stream>>>(data, count, 1);
    add<<<16, 256, 0, stream>>>(pinned, count, 2);
    CHECK(cudaMemcpyAsync(data, pinned, sizeof(int), cudaMemcpyDefault, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int round = 1; round <= 4; round++) {
        CHECK(cudaGraphLaunch(executable, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(data[1] == 1 + 2 * round - 1 && data[count - 1] == static_cast<int>(count) - 1 + round);
        EXPECT(pinned[0] == 3 * round - 1 && data[0] == pinned[0] && pinned[count - 1] == static_cast<int>(count) - 1 + 2 * round);
        data[1]++;
        pinned[0]++;
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

static void events(int *data) {
    for (size_t i = 0; i < count; i++) data[i] = 0;
    cudaStream_t first, second;
    cudaEvent_t event;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int round = 1; round <= 5; round++) {
        add<<<16, 256, 0, first>>>(data, count, 1);
        CHECK(cudaEventRecord(event, first));
        CHECK(cudaStreamWaitEvent(second, event, 0));
        add<<<16, 256, 0, second>>>(data, count, 10);
        CHECK(cudaStreamSynchronize(second));
        EXPECT(data[round] == 11 * round && data[count - 1] == 11 * round);
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

int main() {
    int *data, *pinned;
    CHECK(cudaMallocManaged(&data, count * sizeof(int)));
    CHECK(cudaHostAlloc(&pinned, count * sizeof(int), cudaHostAllocDefault));
    functions(data);
    printf("functions: ok\n");
    graphs(data, pinned);
    printf("graphs: ok\n");
    events(data);
    printf("events: ok\n");
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(data));
    return outcome();
}
