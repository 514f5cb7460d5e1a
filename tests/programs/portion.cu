// The multiprocessors that kernels really run on: no more than the device says it has, whatever
// stream they are in.
//
// `portion COUNT` expects the device to say so many; `portion time` says how long a kernel that
// only computes takes, in milliseconds.
#include <algorithm>
#include <cstring>
#include <set>

#include "check.h"
#include "driver.h"

static const int BLOCKS = 4096;

__global__ void where(unsigned* seen, unsigned rounds) {
    unsigned id, value = threadIdx.x;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
    // Long enough for blocks to be spread.
    for (unsigned r = 0; r < rounds; r++) value = value * 1664525u + 1013904223u;
    if (threadIdx.x == 0) seen[blockIdx.x] = id + (value == 1 ? 1u << 30 : 0);
}

// Rounds that take about as long on few multiprocessors as on the many of a large GPU.
static unsigned rounds;

static size_t used(cudaStream_t stream, unsigned* memory) {
    std::vector<unsigned> seen(BLOCKS);
    where<<<BLOCKS, 128, 0, stream>>>(memory, rounds);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(seen.data(), memory, BLOCKS * sizeof(unsigned), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::set<unsigned> all;
    for (unsigned id : seen) all.insert(id & 0xffffff);
    return all.size();
}

// Work in the default stream and in others that heed it keeps its order.
static void order(unsigned* memory) {
    cudaStream_t heeding;
    CHECK(cudaStreamCreate(&heeding));
    unsigned last = 99;
    for (int turn = 0; turn < 20; turn++) {
        where<<<BLOCKS, 128>>>(memory, rounds);
        CHECK(cudaMemsetAsync(memory, 0, sizeof(unsigned), heeding));
        CHECK(cudaMemcpy(&last, memory, sizeof last, cudaMemcpyDeviceToHost));
        EXPECT(last == 0);
    }
    CHECK(cudaStreamDestroy(heeding));
}

// What a program that knows its device is told before there is a context: multiprocessors that can
// be split.
static void divide() {
    CHECK_DRIVER(DRIVER(cuInit)(0));
    CUdevice device;
    CHECK_DRIVER(DRIVER(cuDeviceGet)(&device, 0));
    int multiprocessors = 0;
    CHECK_DRIVER(DRIVER(cuDeviceGetAttribute)(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    CUdevResource all, group;
    CHECK_DRIVER(DRIVER(cuDeviceGetDevResource)(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(all.sm.smCount == static_cast<unsigned>(multiprocessors) && all.sm.minSmPartitionSize >= 1);
    unsigned groups = 1, least = all.sm.minSmPartitionSize;
    CHECK_DRIVER(DRIVER(cuDevSmResourceSplitByCount)(&group, &groups, &all, nullptr, 0, least));
    EXPECT(groups == 1 && group.sm.smCount >= least && group.sm.smCount <= all.sm.smCount);
}

int main(int count, char** args) {
    divide();
    unsigned* memory;
    CHECK(cudaMalloc(&memory, BLOCKS * sizeof(unsigned)));
    cudaDeviceProp prop;
    CHECK(cudaGetDeviceProperties(&prop, 0));
    if (count == 2 && strcmp(args[1], "time") == 0) {
        cudaEvent_t begin, end;
        CHECK(cudaEventCreate(&begin));
        CHECK(cudaEventCreate(&end));
        where<<<BLOCKS, 128>>>(memory, 1000);
        CHECK(cudaEventRecord(begin));
        for (int i = 0; i < 20; i++) where<<<BLOCKS, 128>>>(memory, 100000);
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        float took = 0;
        CHECK(cudaEventElapsedTime(&took, begin, end));
        printf("%d multiprocessors: %.1f ms\n", prop.multiProcessorCount, took);
        return 0;
    }
    rounds = std::min(2000, 100 * prop.multiProcessorCount);
    if (count == 2) EXPECT(prop.multiProcessorCount == atoi(args[1]));
    cudaStream_t blocking, not_blocking, urgent;
    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaStreamCreateWithFlags(&not_blocking, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, -1));
    for (cudaStream_t stream : {cudaStream_t(nullptr), cudaStreamPerThread, blocking, not_blocking, urgent}) {
        size_t ran_on = used(stream, memory);
        EXPECT(ran_on >= 1 && ran_on <= size_t(prop.multiProcessorCount));
    }
    order(memory);
    CHECK(cudaDeviceSynchronize());
    printf("portion: done\n");
    return 0;
}
