// Once CUDA has started, a program lowers what it may have, or it starts with little: everything
// goes on, or what cannot be is an error. No signal ends it.
//
//   lowered_limits files     no further descriptor once CUDA has started
//   lowered_limits sizes     no file may have a byte, with SIGXFSZ at its default
//   lowered_limits locked    no page may be locked
//   lowered_limits few N     so many descriptors are free before CUDA starts: prints its answer
#include <dirent.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>
#include <string>
#include <thread>

#include "check.h"

__global__ void add(int* values, int count, int what) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] += what;
}

static int descriptors() {
    DIR* folder = opendir("/proc/self/fd");
    EXPECT(folder != nullptr);
    int count = 0;
    while (dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
    closedir(folder);
    return count - 1;
}

// Numbers of descriptors are what the limit is about: all below it are taken.
static void leave_descriptors(int free) {
    int last = descriptors() + free;
    rlimit limit = {(rlim_t)last, (rlim_t)last};
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void set(int which, rlim_t most) {
    rlimit limit = {most, most};
    EXPECT(setrlimit(which, &limit) == 0);
}

// Everything that might need a file, a descriptor or locked memory.
static void work(int round) {
    constexpr int COUNT = 1 << 16, BYTES = COUNT * sizeof(int);
    constexpr size_t LARGE = 48 << 20, SPARSE = 256 << 20;
    int *device, *pinned, *managed, *sparse, *large;
    CHECK(cudaMalloc(&device, BYTES));
    CHECK(cudaMallocHost(&pinned, BYTES));
    CHECK(cudaMallocManaged(&managed, BYTES));
    CHECK(cudaMallocManaged(&sparse, SPARSE));
    CHECK(cudaMalloc(&large, LARGE));
    int* own = (int*)mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(own != MAP_FAILED);
    for (int i = 0; i < COUNT; i++) own[i] = pinned[i] = managed[i] = i * round;
    sparse[SPARSE / 8] = 5;
    CHECK(cudaHostRegister(own, BYTES, cudaHostRegisterMapped));
    add<<<COUNT / 256, 256>>>(managed, COUNT, 1);
    add<<<COUNT / 256, 256>>>(pinned, COUNT, 2);
    add<<<COUNT / 256, 256>>>(own, COUNT, 3);
    add<<<1, 1>>>(sparse + SPARSE / 8, 1, 4);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i++) {
        EXPECT(managed[i] == i * round + 1);
        EXPECT(pinned[i] == i * round + 2);
        EXPECT(own[i] == i * round + 3);
    }
    EXPECT(sparse[SPARSE / 8] == 9 && sparse[7] == 0);
    CHECK(cudaHostUnregister(own));
    EXPECT(own[5] == 5 * round + 3);
    own[5] = 1;
    EXPECT(munmap(own, BYTES) == 0);

    std::vector<char> there(LARGE), back(LARGE);
    for (size_t i = 0; i < LARGE; i += 997) there[i] = (char)(i * round);
    CHECK(cudaMemcpy(large, there.data(), LARGE, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(back.data(), large, LARGE, cudaMemcpyDeviceToHost));
    EXPECT(there == back);

    std::thread([&] {
        cudaStream_t stream;
        cudaEvent_t event;
        cudaGraph_t graph;
        cudaGraphExec_t ready;
        void* pooled;
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaEventCreate(&event));
        CHECK(cudaMallocAsync(&pooled, BYTES, stream));
        CHECK(cudaMemsetAsync(pooled, 0, BYTES, stream));
        CHECK(cudaFreeAsync(pooled, stream));
        CHECK(cudaMemsetAsync(device, 0, BYTES, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        add<<<COUNT / 256, 256, 0, stream>>>(device, COUNT, 6);
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&ready, graph, 0));
        for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(ready, stream));
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaEventSynchronize(event));
        CHECK(cudaGraphExecDestroy(ready));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaEventDestroy(event));
        CHECK(cudaStreamDestroy(stream));
    }).join();
    CHECK(cudaMemcpy(pinned, device, BYTES, cudaMemcpyDeviceToHost));
    EXPECT(pinned[COUNT - 1] == 18);
    CHECK(cudaFree(large));
    CHECK(cudaFree(sparse));
    CHECK(cudaFree(managed));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
}

int main(int argc, char** argv) {
    EXPECT(argc >= 2);
    std::string how = argv[1];
    if (how == "few") {
        EXPECT(argc == 3);
        // The library is loaded by then, which takes a descriptor for a moment.
        void* driver = dlopen("libcuda.so.1", RTLD_NOW);
        EXPECT(driver != nullptr);
        leave_descriptors(atoi(argv[2]));
        cudaError_t started = cudaFree(nullptr);
        if (started == cudaSuccess) work(2);
        printf("%s\n", started == cudaSuccess ? "works" : cudaGetErrorName(started));
        return 0;
    }
    CHECK(cudaFree(nullptr));
    if (how == "files") leave_descriptors(0);
    else if (how == "sizes") set(RLIMIT_FSIZE, 0);
    else if (how == "locked") set(RLIMIT_MEMLOCK, 0);
    else return 2;
    for (int round = 1; round < 4; round++) work(round);
    printf("all rounds\n");
    return 0;
}
