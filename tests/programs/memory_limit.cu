// A device of which the session may have only a part: every way to get memory ends at the same
// limit, and memory that was given back can be had again.
//
// `memory_limit BYTES` expects that limit; without, the device is whole, and nothing of this is to
// be seen. `memory_limit hold BYTES` allocates, says `held` and waits to be ended;
// `memory_limit copy BYTES` says how many milliseconds a copy there and one back take.
// `memory_limit keep BYTES` fills as much, says `ready`, and for each line that it reads whether
// all of it is still there. `memory_limit look BYTES` says how many words of fresh memory are not
// zero, and leaves all of them so.
#include <cstring>
#include <ctime>
#include <unistd.h>

#include "check.h"
#include "driver.h"

static const size_t MIB = 1 << 20;
static CUdevice device;

static size_t free_now(size_t limit) {
    size_t free = 0, total = 0;
    CHECK_DRIVER(DRIVER(cuMemGetInfo)(&free, &total));
    EXPECT(total == limit);
    return free;
}

// As many blocks as there are; the one after is refused.
template <typename Allocate>
static std::vector<CUdeviceptr> fill_up(Allocate allocate) {
    std::vector<CUdeviceptr> all;
    for (;;) {
        CUdeviceptr pointer = 0;
        CUresult result = allocate(&pointer);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) return all;
        CHECK_DRIVER(result);
        all.push_back(pointer);
        EXPECT(all.size() < 1000);
    }
}

static void plain(size_t limit) {
    const size_t block = 8 * MIB;
    for (int round = 0; round < 2; round++) {
        auto all = fill_up([&](CUdeviceptr* out) { return DRIVER(cuMemAlloc)(out, block); });
        EXPECT(all.size() == limit / block);
        EXPECT(free_now(limit) == 0);
        CUdeviceptr refused;
        EXPECT(DRIVER(cuMemAlloc)(&refused, 1) == CUDA_ERROR_OUT_OF_MEMORY);
        for (auto pointer : all) CHECK_DRIVER(DRIVER(cuMemFree)(pointer));
        EXPECT(free_now(limit) == limit);
    }
    size_t pitch;
    CUdeviceptr rows;
    EXPECT(DRIVER(cuMemAllocPitch)(&rows, &pitch, MIB, limit / MIB + 1, 4) == CUDA_ERROR_OUT_OF_MEMORY);
    auto managed =
        fill_up([&](CUdeviceptr* out) { return DRIVER(cuMemAllocManaged)(out, block, CU_MEM_ATTACH_GLOBAL); });
    // Each may take a little more than was asked for.
    EXPECT(managed.size() <= limit / block && managed.size() * 5 >= limit / block * 3);
    for (auto pointer : managed) CHECK_DRIVER(DRIVER(cuMemFree)(pointer));
    printf("plain and managed memory end at the limit\n");
}

static void in_order(size_t limit) {
    const size_t block = 8 * MIB;
    CUstream stream;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CUmemoryPool pool;
    CHECK_DRIVER(DRIVER(cuDeviceGetDefaultMemPool)(&pool, device));
    // A pool that keeps what it has must not stand in the way of others.
    cuuint64_t all_of_it = ~0ull;
    CHECK_DRIVER(DRIVER(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all_of_it));
    for (int round = 0; round < 3; round++) {
        auto all = fill_up([&](CUdeviceptr* out) { return DRIVER(cuMemAllocAsync)(out, block, stream); });
        // A pool may take more of the device than was asked for.
        EXPECT(all.size() <= limit / block && all.size() + 4 >= limit / block);
        for (auto pointer : all) CHECK_DRIVER(DRIVER(cuMemFreeAsync)(pointer, stream));
        if (round == 1) CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    }
    CUdeviceptr whole;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&whole, limit - 8 * MIB));
    CUdeviceptr refused;
    EXPECT(DRIVER(cuMemAllocAsync)(&refused, 16 * MIB, stream) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_DRIVER(DRIVER(cuMemFree)(whole));
    // The stream may come to the free at any moment of the allocation that needs the memory.
    for (int round = 0; round < 200; round++) {
        CUdeviceptr half;
        CHECK_DRIVER(DRIVER(cuMemAllocAsync)(&half, limit / 2, stream));
        CHECK_DRIVER(DRIVER(cuMemsetD8Async)(half, 1, round << 12, stream));
        CHECK_DRIVER(DRIVER(cuMemFreeAsync)(half, stream));
        CHECK_DRIVER(DRIVER(cuMemAlloc)(&whole, limit - 8 * MIB));
        CHECK_DRIVER(DRIVER(cuMemFree)(whole));
    }
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    printf("stream-ordered memory ends at the limit, and what pools keep is given back\n");
}

static CUmemoryPool own_pool() {
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = device;
    CUmemoryPool pool;
    CHECK_DRIVER(DRIVER(cuMemPoolCreate)(&pool, &props));
    return pool;
}

static void pools_that_end(size_t limit) {
    // What is left in a pool that has been destroyed counts until it is freed.
    CUmemoryPool pool = own_pool();
    CUdeviceptr left, refused;
    CHECK_DRIVER(DRIVER(cuMemAllocFromPoolAsync)(&left, limit / 2, pool, nullptr));
    CHECK_DRIVER(DRIVER(cuMemPoolDestroy)(pool));
    EXPECT(DRIVER(cuMemAlloc)(&refused, limit / 2 + 8 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_DRIVER(DRIVER(cuMemFreeAsync)(left, nullptr));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&refused, limit / 2 + 8 * MIB));
    CHECK_DRIVER(DRIVER(cuMemFree)(refused));
    printf("a pool that has ended counts until it is empty\n");
}

static void physical(size_t limit) {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    const size_t block = limit / 4;
    CUdeviceptr at;
    CHECK_DRIVER(DRIVER(cuMemAddressReserve)(&at, 2 * limit, 0, 0, 0));
    CUmemGenericAllocationHandle handle, refused;
    for (size_t i = 0; i < 4; i++) {
        CHECK_DRIVER(DRIVER(cuMemCreate)(&handle, block, &prop, 0));
        CHECK_DRIVER(DRIVER(cuMemMap)(at + i * block, block, 0, handle, 0));
        // Released, it is there as long as it is mapped.
        CHECK_DRIVER(DRIVER(cuMemRelease)(handle));
    }
    EXPECT(DRIVER(cuMemCreate)(&refused, block, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_DRIVER(DRIVER(cuMemUnmap)(at, block));
    CHECK_DRIVER(DRIVER(cuMemCreate)(&handle, block, &prop, 0));
    CHECK_DRIVER(DRIVER(cuMemRelease)(handle));
    CHECK_DRIVER(DRIVER(cuMemUnmap)(at + block, 3 * block));
    CHECK_DRIVER(DRIVER(cuMemAddressFree)(at, 2 * limit));
    EXPECT(free_now(limit) == limit);
    printf("mapped memory ends at the limit\n");
}

static void arrays(size_t limit) {
    CUDA_ARRAY3D_DESCRIPTOR d = {};
    d.Width = 1024;
    d.Height = 1024;
    d.Format = CU_AD_FORMAT_FLOAT;
    d.NumChannels = 4;
    std::vector<CUarray> all;
    CUarray array;
    CUresult result;
    while ((result = DRIVER(cuArray3DCreate)(&array, &d)) == CUDA_SUCCESS) all.push_back(array);
    EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY && all.size() == limit / (16 * MIB));
    CUmipmappedArray mipmap;
    EXPECT(DRIVER(cuMipmappedArrayCreate)(&mipmap, &d, 3) == CUDA_ERROR_OUT_OF_MEMORY);
    for (auto one : all) CHECK_DRIVER(DRIVER(cuArrayDestroy)(one));
    CHECK_DRIVER(DRIVER(cuMipmappedArrayCreate)(&mipmap, &d, 3));
    CHECK_DRIVER(DRIVER(cuMipmappedArrayDestroy)(mipmap));
    EXPECT(free_now(limit) == limit);
    printf("arrays end at the limit\n");
}

static void graphs(size_t limit) {
    CUstream stream;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t bytes : {limit / 2, limit + 8 * MIB}) {
        CUgraph graph;
        CHECK_DRIVER(DRIVER(cuGraphCreate)(&graph, 0));
        CUDA_MEM_ALLOC_NODE_PARAMS memory = {};
        memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        memory.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        memory.poolProps.location.id = device;
        memory.bytesize = bytes;
        CUgraphNode allocate, release;
        CHECK_DRIVER(DRIVER(cuGraphAddMemAllocNode)(&allocate, graph, nullptr, 0, &memory));
        CHECK_DRIVER(DRIVER(cuGraphAddMemFreeNode)(&release, graph, &allocate, 1, memory.dptr));
        CUgraphExec exec;
        CHECK_DRIVER(DRIVER(cuGraphInstantiate)(&exec, graph, 0));
        for (int round = 0; round < 2; round++) {
            CUresult launched = DRIVER(cuGraphLaunch)(exec, stream);
            CUresult waited = DRIVER(cuStreamSynchronize)(stream);
            CUresult worst = launched != CUDA_SUCCESS ? launched : waited;
            EXPECT(worst == (bytes > limit ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS));
        }
        CHECK_DRIVER(DRIVER(cuGraphExecDestroy)(exec));
        CHECK_DRIVER(DRIVER(cuGraphDestroy)(graph));
        CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    }
    // What graphs keep is given back when others need it.
    CUdeviceptr pointer;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&pointer, limit));
    CHECK_DRIVER(DRIVER(cuMemFree)(pointer));
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    printf("graphs end at the limit\n");
}

static long milliseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void copy(size_t bytes) {
    std::vector<unsigned> there(bytes / 4), back(bytes / 4);
    for (size_t i = 0; i < there.size(); i++) there[i] = unsigned(i) * 2654435761u;
    CUdeviceptr pointer;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&pointer, bytes));
    long begin = milliseconds();
    CHECK_DRIVER(DRIVER(cuMemcpyHtoD)(pointer, there.data(), bytes));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    long between = milliseconds();
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(back.data(), pointer, bytes));
    long end = milliseconds();
    EXPECT(there == back);
    printf("%ld %ld\n", between - begin, end - between);
}

__global__ void fill(unsigned long long* out, size_t words, unsigned long long seed) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words; i += size_t(gridDim.x) * blockDim.x)
        out[i] = i * 0x9e3779b97f4a7c15ull ^ seed;
}

__global__ void differ(const unsigned long long* in, size_t words, unsigned long long seed, unsigned long long* wrong) {
    unsigned long long own = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words; i += size_t(gridDim.x) * blockDim.x)
        own += in[i] != (i * 0x9e3779b97f4a7c15ull ^ seed);
    if (own) atomicAdd(wrong, own);
}

__global__ void nonzero(const unsigned long long* in, size_t words, unsigned long long* found) {
    unsigned long long own = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words; i += size_t(gridDim.x) * blockDim.x)
        own += in[i] != 0;
    if (own) atomicAdd(found, own);
}

static void keep(size_t bytes) {
    unsigned long long seed = getpid(), *memory, *wrong, count;
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMalloc(&memory, bytes));
    fill<<<256, 256>>>(memory, bytes / 8, seed);
    CHECK(cudaDeviceSynchronize());
    printf("ready\n");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin) != nullptr) {
        long begin = milliseconds();
        CHECK(cudaMemset(wrong, 0, sizeof *wrong));
        long woken = milliseconds();
        differ<<<256, 256>>>(memory, bytes / 8, seed, wrong);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(&count, wrong, sizeof count, cudaMemcpyDeviceToHost));
        EXPECT(count == 0);
        printf("right after %ld and %ld ms\n", woken - begin, milliseconds() - woken);
        fflush(stdout);
    }
}

static void look(size_t bytes) {
    unsigned long long *memory, *found, count;
    CHECK(cudaMalloc(&found, sizeof *found));
    CHECK(cudaMalloc(&memory, bytes));
    CHECK(cudaMemset(found, 0, sizeof *found));
    nonzero<<<256, 256>>>(memory, bytes / 8, found);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&count, found, sizeof count, cudaMemcpyDeviceToHost));
    fill<<<256, 256>>>(memory, bytes / 8, 0x0123456789abcdefull);
    CHECK(cudaDeviceSynchronize());
    printf("%llu words of %zu are not zero\n", count, bytes / 8);
}

static void modules(size_t limit) {
    const char* text = ".version 6.4\n.target sm_50\n.address_size 64\n.visible .global .align 8 .b8 big[%zu];\n"
                       ".visible .entry nothing() {\n    ret;\n}\n";
    char image[512];
    CUmodule module, refused;
    snprintf(image, sizeof image, text, limit / 2);
    CHECK_DRIVER(DRIVER(cuModuleLoadData)(&module, image));
    EXPECT(free_now(limit) <= limit / 2);
    EXPECT(DRIVER(cuModuleLoadData)(&refused, image) == CUDA_ERROR_OUT_OF_MEMORY || free_now(limit) == 0);
    CUdeviceptr pointer;
    EXPECT(DRIVER(cuMemAlloc)(&pointer, limit / 2 + 8 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
    snprintf(image, sizeof image, text, limit + 8 * MIB);
    EXPECT(DRIVER(cuModuleLoadData)(&refused, image) == CUDA_ERROR_OUT_OF_MEMORY);
    printf("variables of modules end at the limit\n");
}

int main(int count, char** args) {
    CHECK(cudaFree(nullptr));
    CHECK_DRIVER(DRIVER(cuCtxGetDevice)(&device));
    if (count == 3 && strcmp(args[1], "hold") == 0) {
        CUdeviceptr pointer;
        CHECK_DRIVER(DRIVER(cuMemAlloc)(&pointer, strtoull(args[2], nullptr, 10)));
        printf("held\n");
        fflush(stdout);
        for (;;) sleep(1000);
    }
    if (count == 3 && strcmp(args[1], "copy") == 0) {
        copy(strtoull(args[2], nullptr, 10));
        return 0;
    }
    if (count == 3 && strcmp(args[1], "keep") == 0) {
        keep(strtoull(args[2], nullptr, 10));
        return 0;
    }
    if (count == 3 && strcmp(args[1], "look") == 0) {
        look(strtoull(args[2], nullptr, 10));
        return 0;
    }
    size_t total = 0;
    CHECK_DRIVER(DRIVER(cuDeviceTotalMem)(&total, device));
    if (count == 2) {
        size_t limit = strtoull(args[1], nullptr, 10);
        EXPECT(total == limit);
        EXPECT(free_now(limit) == limit);
        plain(limit);
        in_order(limit);
        pools_that_end(limit);
        physical(limit);
        arrays(limit);
        graphs(limit);
        modules(limit);
    }
    printf("memory_limit: done\n");
    return 0;
}
