// Cooperative groups and the block-wide primitives of the C++ library: partitions, asynchronous
// copies, barriers with phases, pipelines, and a grid that waits for itself.
#include "check.h"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>

#include <algorithm>

namespace cg = cooperative_groups;

__global__ void partitions(int* warp_sums, int* scans, int* odd_sums, int* thirds) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    int rank = block.thread_rank();
    warp_sums[rank] = cg::reduce(warp, rank, cg::plus<int>());
    scans[rank] = cg::inclusive_scan(warp, rank);
    if (rank % 2 == 1) {
        auto odd = cg::coalesced_threads();
        odd_sums[rank] = cg::reduce(odd, rank, cg::plus<int>());
    }
    auto third = cg::labeled_partition(warp, rank % 3);
    thirds[rank] = cg::reduce(third, 1, cg::plus<int>());
}

void check_partitions() {
    const int threads = 256;
    DeviceArray<int> sums(threads), scans(threads), odd(threads), thirds(threads);
    odd.zero();
    partitions<<<1, threads>>>(sums.get(), scans.get(), odd.get(), thirds.get());
    CHECK(cudaGetLastError());
    auto s = sums.download(), c = scans.download(), o = odd.download(), t = thirds.download();
    for (int i = 0; i < threads; i++) {
        int sum = 0, scan = 0, odd_sum = 0, third = 0;
        for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++) {
            sum += j;
            scan += j <= i ? j : 0;
            odd_sum += j % 2 == 1 ? j : 0;
            third += j % 3 == i % 3;
        }
        EXPECT(s[i] == sum && c[i] == scan && o[i] == (i % 2 == 1 ? odd_sum : 0) && t[i] == third);
    }
    printf("partitions of warps: right\n");
}

__global__ void copied(const int* in, int* out) {
    __shared__ int tile[1024];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile, in, sizeof(tile));
    cg::wait(block);
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) {
        out[i] = tile[1023 - i];
    }
}

// Each round adds one for each thread; nobody sees a round that is not complete.
__global__ void phases(int* finished, int* early) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ int total;
    if (threadIdx.x == 0) {
        init(&barrier, blockDim.x);
        total = 0;
    }
    __syncthreads();
    for (int round = 1; round <= 10; round++) {
        atomicAdd(&total, 1);
        barrier.arrive_and_wait();
        if (total != round * (int)blockDim.x) {
            *early = 1;
        }
        auto token = barrier.arrive();
        barrier.wait(std::move(token));
    }
    cuda::atomic_ref<int, cuda::thread_scope_device>(*finished).fetch_add(1, cuda::memory_order_acq_rel);
}

__global__ void stages(const float* in, float* out) {
    __shared__ float tile[2][256];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipeline = cuda::make_pipeline(block, &state);
    for (int stage = 0; stage < 2; stage++) {
        pipeline.producer_acquire();
        cuda::memcpy_async(block, tile[stage], in + 256 * stage, sizeof(tile[stage]), pipeline);
        pipeline.producer_commit();
    }
    for (int stage = 0; stage < 2; stage++) {
        pipeline.consumer_wait();
        out[256 * stage + threadIdx.x] = 2 * tile[stage][255 - threadIdx.x];
        pipeline.consumer_release();
    }
}

void check_copies() {
    std::vector<int> numbers(1024);
    std::vector<float> floats(512);
    for (int i = 0; i < 1024; i++) {
        numbers[i] = 3 * i;
        floats[i / 2] = i / 2;
    }
    DeviceArray<int> in(numbers), out(1024), counts(std::vector<int>{0, 0});
    copied<<<1, 128>>>(in.get(), out.get());
    CHECK(cudaGetLastError());
    std::reverse(numbers.begin(), numbers.end());
    EXPECT(out.download() == numbers);
    printf("asynchronous copy: right\n");

    phases<<<2, 96>>>(counts.get(), counts.get() + 1);
    CHECK(cudaGetLastError());
    EXPECT((counts.download() == std::vector<int>{192, 0}));
    printf("barrier with phases: right\n");

    DeviceArray<float> source(floats), doubled(512);
    stages<<<1, 256>>>(source.get(), doubled.get());
    CHECK(cudaGetLastError());
    auto result = doubled.download();
    for (int i = 0; i < 512; i++) {
        EXPECT(result[i] == 2 * floats[i / 256 * 256 + 255 - i % 256]);
    }
    printf("pipeline: right\n");
}

// Every block waits for all blocks in each round.
__global__ void rounds(int* total, int* early, int threads) {
    auto grid = cg::this_grid();
    for (int round = 1; round <= 5; round++) {
        atomicAdd(total, 1);
        grid.sync();
        if (*(volatile int*)total < round * threads) {
            *early = 1;
        }
        grid.sync();
    }
}

void check_grid() {
    DeviceArray<int> counts(std::vector<int>{0, 0});
    int *total = counts.get(), *early = counts.get() + 1;
    int threads = 4 * 64;
    void* args[] = {&total, &early, &threads};
    CHECK(cudaLaunchCooperativeKernel((void*)rounds, dim3(4), dim3(64), args, 0, nullptr));
    EXPECT((counts.download() == std::vector<int>{5 * threads, 0}));
    printf("grid that waits for itself: right\n");
}

int main() {
    check_partitions();
    check_copies();
    check_grid();
    return 0;
}
