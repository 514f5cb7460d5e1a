// Memory of cuMemAlloc that is freed and allocated again: how much there is of it, what is in it,
// and who waits for whom.
//
//   credit [bursts]
//   credit hold FILE    frees memory again and again, until the file is there
//   credit all MIB      allocates so many MiB more than are free
//   credit meanwhile    needs what is kept while that goes back by itself
//   credit beside       needs what is kept while another thread keeps the device busy
#include "check.h"
#include "driver.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <unistd.h>

static const size_t MIB = 1 << 20;

static size_t free_bytes() {
    size_t free, total;
    CHECK(cudaMemGetInfo(&free, &total));
    return free;
}

__global__ void slow_fill(unsigned* out, size_t count, unsigned value, unsigned rounds) {
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) {
        unsigned x = 1;
        for (unsigned r = 0; r < rounds; r++) x = x * 1664525u + 1013904223u;
        out[i] = value + (x == 12345u);
    }
}

// Runs for so long.
__global__ void last(unsigned long long milliseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < milliseconds * 1000000);
}

// So many bytes fewer are free than there were, to within a block.
static void expect_fewer(size_t before, size_t bytes) {
    const long long fewer = (long long)before - (long long)free_bytes(), off = fewer - (long long)bytes;
    if (off < -2 * (long long)MIB || off > 2 * (long long)MIB) {
        printf("%lld bytes fewer are free, not %zu\n", fewer, bytes);
        exit(1);
    }
}

// What is allocated and freed shows as natively.
static void amounts() {
    void* first;
    CHECK(cudaMalloc(&first, 1));
    const size_t before = free_bytes();
    for (size_t bytes : {4 * size_t(1024), 64 * MIB, 100 * MIB, 300 * MIB}) {
        void* memory;
        CHECK(cudaMalloc(&memory, bytes));
        expect_fewer(before, bytes);
        CHECK(cudaFree(memory));
        expect_fewer(before, 0);
    }
    std::vector<void*> many(3000);
    for (void*& one : many) CHECK(cudaMalloc(&one, 1500));
    expect_fewer(before, 3000 * 1536);
    for (void* one : many) CHECK(cudaFree(one));
    expect_fewer(before, 0);
    CHECK(cudaFree(first));
    printf("free memory is as it should be\n");
}

// Memory is freed once the work that uses it is done, whatever stream that is in.
static void frees_wait() {
    const size_t count = MIB;
    unsigned *one, *other;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (unsigned round = 0; round < 3; round++) {
        CHECK(cudaMalloc(&one, count * sizeof(unsigned)));
        slow_fill<<<1, 256, 0, stream>>>(one, count, 7, 20);
        CHECK(cudaFree(one));
        CHECK(cudaStreamQuery(stream));
        CHECK(cudaMalloc(&other, count * sizeof(unsigned)));
        CHECK(cudaMemset(other, 0, count * sizeof(unsigned)));
        std::vector<unsigned> values(count, 1);
        CHECK(cudaMemcpy(values.data(), other, count * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (unsigned value : values) EXPECT(value == 0);
        CHECK(cudaFree(other));
    }
    CHECK(cudaStreamDestroy(stream));
    printf("memory is freed behind the work that uses it\n");
}

// Memory of cudaMalloc may be freed in a stream's order: the call does not wait.
static void frees_in_order() {
    const size_t count = MIB;
    unsigned *one, *other;
    volatile bool released = false;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&one, count * sizeof(unsigned)));
    CHECK(cudaLaunchHostFunc(stream, [](void* released) { while (!*static_cast<volatile bool*>(released)) usleep(100); },
                             const_cast<bool*>(&released)));
    slow_fill<<<1, 256, 0, stream>>>(one, count, 7, 20);
    CHECK(cudaFreeAsync(one, stream));
    CHECK(cudaMalloc(&other, count * sizeof(unsigned)));
    released = true;
    CHECK(cudaMemset(other, 0, count * sizeof(unsigned)));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<unsigned> values(count, 1);
    CHECK(cudaMemcpy(values.data(), other, count * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (unsigned value : values) EXPECT(value == 0);
    CHECK(cudaFree(other));
    CHECK(cudaStreamDestroy(stream));
    printf("memory is freed in a stream's order\n");
}

// What is kept is there for allocations of any kind and size.
static void all_can_be_had() {
    std::vector<void*> blocks;
    for (int i = 0; i < 16; i++) {
        void* block;
        CHECK(cudaMalloc(&block, 8 * MIB));
        blocks.push_back(block);
    }
    const size_t rest = free_bytes();
    for (void* block : blocks) CHECK(cudaFree(block));
    void *most, *pooled, *too_much;
    CHECK(cudaMalloc(&most, rest));
    CHECK(cudaMallocAsync(&pooled, 64 * MIB, 0));
    EXPECT(cudaMalloc(&too_much, 100 * MIB) == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaFreeAsync(pooled, 0));
    CHECK(cudaFree(most));
    for (void*& block : blocks) CHECK(cudaMalloc(&block, 8 * MIB));
    for (void* block : blocks) CHECK(cudaFree(block));
    CUmemAllocationProp kind = {};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle physical;
    CHECK_DRIVER(DRIVER(cuMemCreate)(&physical, (rest / (2 * MIB) + 32) * (2 * MIB), &kind, 0));
    CHECK_DRIVER(DRIVER(cuMemRelease)(physical));
    printf("nothing of what is kept is lost\n");
}

// Takes all memory but 128 MiB, which were allocated before and are freed.
static void* all_but_what_is_freed() {
    void *blocks[2], *most;
    for (void*& block : blocks) CHECK(cudaMalloc(&block, 64 * MIB));
    // As much as devices give out at once, so that none of the 128 MiB are needed.
    const size_t rest = free_bytes() / (2 * MIB) * (2 * MIB);
    for (void* block : blocks) CHECK(cudaFree(block));
    CHECK(cudaMalloc(&most, rest));
    return most;
}

static void pooled() {
    void* memory;
    CHECK(cudaMallocAsync(&memory, 64 * MIB, 0));
    CHECK(cudaFreeAsync(memory, 0));
    CHECK(cudaStreamSynchronize(0));
}

static void plain() {
    void* memory;
    CHECK(cudaMalloc(&memory, 96 * MIB));
    CHECK(cudaFree(memory));
}

static void managed() {
    void* memory;
    CHECK(cudaMallocManaged(&memory, 96 * MIB));
    CHECK(cudaFree(memory));
}

static void array() {
    cudaArray_t array;
    const cudaChannelFormatDesc words = cudaCreateChannelDesc<unsigned>();
    CHECK(cudaMallocArray(&array, &words, 4096, 4096));
    CHECK(cudaFreeArray(array));
}

static void physical() {
    CUmemAllocationProp kind = {};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle memory;
    CHECK_DRIVER(DRIVER(cuMemCreate)(&memory, 64 * MIB, &kind, 0));
    CHECK_DRIVER(DRIVER(cuMemRelease)(memory));
}

static void page_locked() {
    void *memory, *device;
    CHECK(cudaMallocHost(&memory, 64 * MIB));
    CHECK(cudaHostGetDevicePointer(&device, memory, 0));
    CHECK(cudaFreeHost(memory));
}

// What is kept goes back by itself after half a second, and the allocation that needs it takes
// longer: the software device waits for a kernel before it refuses one.
static void meanwhile() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    void* most = all_but_what_is_freed();
    last<<<1, 1, 0, stream>>>(1500);
    pooled();
    CHECK(cudaFree(most));
    CHECK(cudaStreamDestroy(stream));
    printf("meanwhile: done\n");
}

// Another thread's work uses none of what is kept.
static void beside() {
    std::atomic<bool> over{false};
    std::thread other([&over] {
        cudaStream_t stream;
        cudaEvent_t done[2];
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (cudaEvent_t& event : done) CHECK(cudaEventCreate(&event));
        for (unsigned i = 0; !over; i++) {
            CHECK(cudaEventSynchronize(done[i % 2]));
            last<<<1, 1, 0, stream>>>(20);
            CHECK(cudaEventRecord(done[i % 2], stream));
        }
        CHECK(cudaStreamSynchronize(stream));
        for (cudaEvent_t event : done) CHECK(cudaEventDestroy(event));
        CHECK(cudaStreamDestroy(stream));
    });
    for (auto kind : {pooled, plain, managed, array, physical, page_locked}) {
        void* most = all_but_what_is_freed();
        kind();
        CHECK(cudaFree(most));
    }
    over = true;
    other.join();
    printf("beside: done\n");
}

static void context_ends() {
    void *kept, *used;
    CHECK(cudaMalloc(&kept, 32 * MIB));
    CHECK(cudaMalloc(&used, 32 * MIB));
    CHECK(cudaFree(kept));
    CHECK(cudaDeviceReset());
    EXPECT(cudaMemset(used, 0, 1) != cudaSuccess);
    cudaGetLastError();
    amounts();
}

static void bursts() {
    for (size_t bytes : {4 * size_t(1024), 64 * MIB})
        for (int i = 0; i < 2000; i++) {
            void* memory;
            CHECK(cudaMalloc(&memory, bytes));
            CHECK(cudaFree(memory));
        }
    // Those that are allocated and not freed share blocks.
    std::vector<void*> many(2000);
    for (void*& one : many) CHECK(cudaMalloc(&one, 4096));
    for (void* one : many) CHECK(cudaFree(one));
    printf("bursts: done\n");
}

static void hold(const char* file) {
    do {
        void* memory;
        if (cudaMalloc(&memory, 96 * MIB) == cudaSuccess) CHECK(cudaFree(memory));
        cudaGetLastError();
        printf("held\n");
        fflush(stdout);
        usleep(50000);
    } while (access(file, F_OK) != 0);
}

static void all(size_t more) {
    void* memory;
    CHECK(cudaMalloc(&memory, free_bytes() + more));
    CHECK(cudaMemset(memory, 1, 4096));
    CHECK(cudaFree(memory));
    printf("all: done\n");
}

int main(int argc, char** argv) {
    CHECK(cudaFree(nullptr));
    if (argc > 1 && !strcmp(argv[1], "bursts")) return bursts(), 0;
    if (argc > 2 && !strcmp(argv[1], "hold")) return hold(argv[2]), 0;
    if (argc > 2 && !strcmp(argv[1], "all")) return all(atoi(argv[2]) * MIB), 0;
    if (argc > 1 && !strcmp(argv[1], "meanwhile")) return meanwhile(), 0;
    if (argc > 1 && !strcmp(argv[1], "beside")) return beside(), 0;
    amounts();
    frees_wait();
    frees_in_order();
    all_can_be_had();
    context_ends();
    printf("credit: done\n");
    return 0;
}
