// Memory pools: the default one, own ones, the current one; what they say of themselves.
#include "check.h"
#include "driver.h"

static CUdevice device;
static CUmemLocation place;
static CUstream stream;

__global__ void count_up(unsigned* out, size_t count, unsigned from) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = from + unsigned(i);
}

static uint64_t wide(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 99;
    CHECK_DRIVER(DRIVER(cuMemPoolGetAttribute)(pool, attribute, &value));
    return value;
}

static int flag(CUmemoryPool pool, CUmemPool_attribute attribute) {
    int value = 99;
    CHECK_DRIVER(DRIVER(cuMemPoolGetAttribute)(pool, attribute, &value));
    return value;
}

static CUmemoryPool create(size_t most) {
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = place;
    props.maxSize = most;
    CUmemoryPool pool = nullptr;
    CHECK_DRIVER(DRIVER(cuMemPoolCreate)(&pool, &props));
    return pool;
}

static CUmemoryPool pool_of(CUdeviceptr pointer) {
    CUmemoryPool pool = nullptr;
    CHECK_DRIVER(DRIVER(cuPointerGetAttribute)(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer));
    return pool;
}

static void use(CUdeviceptr pointer, size_t count, unsigned from) {
    count_up<<<blocks_for(count, 256), 256, 0, stream>>>(reinterpret_cast<unsigned*>(pointer), count, from);
    CHECK(cudaGetLastError());
    std::vector<unsigned> out(count);
    CHECK_DRIVER(DRIVER(cuMemcpyDtoHAsync)(out.data(), pointer, count * sizeof(unsigned), stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    for (size_t i = 0; i < count; i++) EXPECT(out[i] == from + unsigned(i));
}

static void which_pool() {
    CUmemoryPool normal, current, asked;
    CHECK_DRIVER(DRIVER(cuDeviceGetDefaultMemPool)(&normal, device));
    CHECK_DRIVER(DRIVER(cuDeviceGetMemPool)(&current, device));
    EXPECT(normal == current && normal != nullptr);
    CHECK_DRIVER(DRIVER(cuMemGetDefaultMemPool)(&asked, &place, CU_MEM_ALLOCATION_TYPE_PINNED));
    EXPECT(asked == normal);
    CUdeviceptr pointer;
    CHECK_DRIVER(DRIVER(cuMemAllocAsync)(&pointer, 4000, stream));
    EXPECT(pool_of(pointer) == normal);
    use(pointer, 1000, 1);
    CHECK_DRIVER(DRIVER(cuMemFreeAsync)(pointer, stream));

    CUmemoryPool own = create(0);
    CHECK_DRIVER(DRIVER(cuDeviceSetMemPool)(device, own));
    CHECK_DRIVER(DRIVER(cuDeviceGetMemPool)(&current, device));
    EXPECT(current == own);
    CHECK_DRIVER(DRIVER(cuMemGetMemPool)(&asked, &place, CU_MEM_ALLOCATION_TYPE_PINNED));
    EXPECT(asked == own);
    CHECK_DRIVER(DRIVER(cuMemAllocAsync)(&pointer, 4000, stream));
    EXPECT(pool_of(pointer) == own);
    use(pointer, 1000, 2);
    // The pool of an allocation need not be the current one.
    CUdeviceptr other;
    CHECK_DRIVER(DRIVER(cuMemAllocFromPoolAsync)(&other, 4000, normal, stream));
    EXPECT(pool_of(other) == normal);
    CHECK_DRIVER(DRIVER(cuMemFreeAsync)(other, stream));
    CHECK_DRIVER(DRIVER(cuMemSetMemPool)(&place, CU_MEM_ALLOCATION_TYPE_PINNED, normal));
    CHECK_DRIVER(DRIVER(cuDeviceSetMemPool)(device, own));
    CHECK_DRIVER(DRIVER(cuMemFreeAsync)(pointer, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    CHECK_DRIVER(DRIVER(cuMemPoolDestroy)(own));
    CHECK_DRIVER(DRIVER(cuDeviceGetMemPool)(&current, device));
    EXPECT(current == normal);
    CUdeviceptr plain;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&plain, 4000));
    EXPECT(pool_of(plain) == nullptr);
    CHECK_DRIVER(DRIVER(cuMemFree)(plain));
    EXPECT_DRIVER(DRIVER(cuMemPoolDestroy)(normal), CUDA_ERROR_INVALID_VALUE);
    printf("default and current pools\n");
}

static void attributes() {
    CUmemoryPool pool = create(0);
    printf("reuse: %d %d %d, threshold %llu\n", flag(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES),
           flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC),
           flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES),
           static_cast<unsigned long long>(wide(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)));
    int off = 0;
    cuuint64_t threshold = ~0ull, zero = 0;
    CHECK_DRIVER(DRIVER(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
    CHECK_DRIVER(DRIVER(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    EXPECT(flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC) == 0);
    EXPECT(wide(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == threshold);
    EXPECT(wide(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);

    const size_t bytes = 8 << 20;
    CUdeviceptr a, b;
    CHECK_DRIVER(DRIVER(cuMemAllocFromPoolAsync)(&a, bytes, pool, stream));
    CHECK_DRIVER(DRIVER(cuMemAllocFromPoolAsync)(&b, bytes, pool, stream));
    use(a, bytes / 4, 3);
    EXPECT(wide(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 2 * bytes);
    EXPECT(wide(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 2 * bytes);
    CHECK_DRIVER(DRIVER(cuMemFreeAsync)(a, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    EXPECT(wide(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == bytes);
    EXPECT(wide(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 2 * bytes);
    CHECK_DRIVER(DRIVER(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    EXPECT(wide(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == bytes);
    CHECK_DRIVER(DRIVER(cuMemFreeAsync)(b, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    CHECK_DRIVER(DRIVER(cuMemPoolTrimTo)(pool, 0));
    EXPECT(wide(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
    EXPECT(wide(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 2 * bytes);
    EXPECT_DRIVER(DRIVER(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemPoolGetAttribute)(pool, static_cast<CUmemPool_attribute>(77), &zero), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuMemPoolDestroy)(pool));
    printf("attributes\n");
}

static void limits() {
    CUmemoryPool pool = create(64 << 20);
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CHECK_DRIVER(DRIVER(cuMemPoolGetAccess)(&flags, pool, &place));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemAccessDesc access = {place, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_DRIVER(DRIVER(cuMemPoolSetAccess)(pool, &access, 1));
    CUdeviceptr pointer;
    EXPECT_DRIVER(DRIVER(cuMemAllocFromPoolAsync)(&pointer, 1ull << 30, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_DRIVER(DRIVER(cuMemAllocFromPoolAsync)(&pointer, 4 << 20, pool, stream));
    use(pointer, 1 << 20, 4);
    // Freed without a stream, by the call for all memory.
    CHECK_DRIVER(DRIVER(cuMemFree)(pointer));
    CHECK_DRIVER(DRIVER(cuMemPoolDestroy)(pool));
    printf("limits\n");
}

// The same sizes over and over, in two streams that hand memory to each other.
static void churn() {
    CUstream other;
    CUevent event;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    DeviceArray<unsigned> results(200);
    for (unsigned round = 0; round < 200; round++) {
        CUdeviceptr pointer;
        CHECK_DRIVER(DRIVER(cuMemAllocAsync)(&pointer, 40000 + 1000 * (round % 7), stream));
        count_up<<<40, 256, 0, stream>>>(reinterpret_cast<unsigned*>(pointer), 10000, round);
        CHECK_DRIVER(DRIVER(cuEventRecord)(event, stream));
        CHECK_DRIVER(DRIVER(cuStreamWaitEvent)(other, event, 0));
        CHECK_DRIVER(DRIVER(cuMemcpyDtoDAsync)(reinterpret_cast<CUdeviceptr>(results.get() + round),
                                               pointer + 4 * (9999 - round), 4, other));
        CHECK_DRIVER(DRIVER(cuMemFreeAsync)(pointer, other));
    }
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(other));
    std::vector<unsigned> values = results.download();
    for (unsigned round = 0; round < 200; round++) EXPECT(values[round] == 9999);
    CHECK_DRIVER(DRIVER(cuEventDestroy)(event));
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(other));
    printf("memory handed from stream to stream\n");
}

int main() {
    CHECK(cudaFree(nullptr));
    CHECK_DRIVER(DRIVER(cuCtxGetDevice)(&device));
    place.type = CU_MEM_LOCATION_TYPE_DEVICE;
    place.id = device;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    which_pool();
    attributes();
    limits();
    churn();
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    printf("memory_pools: done\n");
    return outcome();
}
