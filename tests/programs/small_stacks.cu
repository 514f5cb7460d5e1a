// A thread with 64 KiB of stack, as languages and libraries make them, uses the device from its
// first call on: code is loaded and compiled, memory of each kind is used, a graph and a host
// function run.
#include "check.h"
#include "driver.h"

#include <pthread.h>

__global__ void add(int* values, int more) {
    values[threadIdx.x] += more;
}

static const char code[] = R"(
.version 6.4
.target sm_50
.address_size 64
.visible .entry nothing()
{
    ret;
}
)";

static void* all(void*) {
    constexpr int COUNT = 64;
    int *device, *managed, *pinned, called = 0;
    CHECK(cudaMalloc(&device, 1 << 20));
    CHECK(cudaMallocManaged(&managed, 1 << 20));
    CHECK(cudaMallocHost(&pinned, 1 << 20));
    CHECK(cudaMemset(device, 0, 1 << 20));
    managed[3] = 5;
    add<<<1, COUNT>>>(device, 1);
    add<<<1, COUNT>>>(managed, 1);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(pinned, device, 1 << 20, cudaMemcpyDeviceToHost));
    EXPECT(pinned[COUNT - 1] == 1 && pinned[COUNT] == 0 && managed[3] == 6);

    CUmodule module;
    CHECK_DRIVER(DRIVER(cuModuleLoadData)(&module, code));
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));

    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    add<<<1, COUNT, 0, stream>>>(device, 2);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaLaunchHostFunc(stream, [](void* count) { ++*static_cast<int*>(count); }, &called));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(pinned, device, 4 * COUNT, cudaMemcpyDeviceToHost));
    EXPECT(called == 1 && pinned[0] == 3);
    return nullptr;
}

int main() {
    pthread_attr_t small;
    pthread_t thread;
    EXPECT(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 64 << 10) == 0);
    EXPECT(pthread_create(&thread, &small, all, nullptr) == 0);
    EXPECT(pthread_join(thread, nullptr) == 0);
    printf("64 KiB are enough\n");
    return 0;
}
