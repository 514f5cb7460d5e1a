// What addresses say of themselves, of every kind of memory; and the oldest forms of the calls for
// memory.
#include "check.h"
#include "driver.h"

static const size_t BYTES = 1 << 20;

template <typename T>
static T ask(CUpointer_attribute attribute, CUdeviceptr address) {
    T value{};
    CHECK_DRIVER(DRIVER(cuPointerGetAttribute)(&value, attribute, address));
    return value;
}

// Base, size, type, device: the same wherever in the allocation one asks.
static void expect_range(CUdeviceptr base, size_t bytes, unsigned type) {
    for (size_t offset : {size_t(0), size_t(1), bytes / 2, bytes - 1}) {
        CUdeviceptr address = base + offset;
        EXPECT(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) == base);
        EXPECT(ask<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) == bytes);
        EXPECT(ask<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == type);
        EXPECT(ask<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == 0);
        EXPECT(ask<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == 0);
        EXPECT(ask<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, address) == 1);
    }
}

static void device_memory() {
    CUcontext current;
    CHECK_DRIVER(DRIVER(cuCtxGetCurrent)(&current));
    CUdeviceptr one, two;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&one, BYTES));
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&two, BYTES));
    expect_range(one, BYTES, CU_MEMORYTYPE_DEVICE);
    EXPECT(ask<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, one + 7) == current);
    EXPECT(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, one + 7) == one + 7);
    auto id = ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, one);
    EXPECT(id == ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, one + 99));
    EXPECT(id != ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, two));
    EXPECT(ask<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, one) == 1);
    EXPECT(ask<unsigned long long>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, one) == 0);
    EXPECT(ask<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, one) == nullptr);
    EXPECT(ask<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, one) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    void* host;
    EXPECT_DRIVER(DRIVER(cuPointerGetAttribute)(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, one), CUDA_ERROR_INVALID_VALUE);

    // Synchronous operations that always wait: set, seen, at work, taken back.
    EXPECT(ask<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one) == 0);
    unsigned on = 1, off = 0;
    CHECK_DRIVER(DRIVER(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one));
    EXPECT((ask<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one + 50) & 1) == 1);
    CHECK_DRIVER(DRIVER(cuMemsetD8)(one, 0x11, BYTES));
    CHECK_DRIVER(DRIVER(cuMemcpyDtoD)(two, one, BYTES));
    CUstream stream;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    std::vector<unsigned char> bytes(BYTES);
    CHECK_DRIVER(DRIVER(cuMemcpyDtoHAsync)(bytes.data(), two, BYTES, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    for (unsigned char byte : bytes) EXPECT(byte == 0x11);
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    CHECK_DRIVER(DRIVER(cuPointerSetAttribute)(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one));
    EXPECT((ask<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one) & 1) == 0);
    EXPECT(DRIVER(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, one) != CUDA_SUCCESS);
    CHECK_DRIVER(DRIVER(cuMemFree)(one));
    CHECK_DRIVER(DRIVER(cuMemFree)(two));
    EXPECT_DRIVER(DRIVER(cuPointerGetAttribute)(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, one), CUDA_ERROR_INVALID_VALUE);
    printf("device memory\n");
}

static void host_memory() {
    void* pinned;
    CHECK_DRIVER(DRIVER(cuMemAllocHost)(&pinned, BYTES));
    CUdeviceptr address = reinterpret_cast<CUdeviceptr>(pinned);
    EXPECT(ask<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 9) == CU_MEMORYTYPE_HOST);
    EXPECT(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 9) == address + 9);
    EXPECT(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 9) == address);
    CHECK_DRIVER(DRIVER(cuMemFreeHost)(pinned));
    printf("page-locked memory\n");
}

static void mapped_memory() {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    size_t granule;
    CHECK_DRIVER(DRIVER(cuMemGetAllocationGranularity)(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUdeviceptr base, second;
    CUmemGenericAllocationHandle handle;
    CHECK_DRIVER(DRIVER(cuMemAddressReserve)(&base, 3 * granule, 0, 0, 0));
    CHECK_DRIVER(DRIVER(cuMemCreate)(&handle, granule, &prop, 0));
    second = base + granule;
    CHECK_DRIVER(DRIVER(cuMemMap)(second, granule, 0, handle, 0));
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_DRIVER(DRIVER(cuMemSetAccess)(second, granule, &access, 1));
    EXPECT(ask<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, second + 9) == CU_MEMORYTYPE_DEVICE);
    EXPECT(ask<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, second) == 0);
    EXPECT(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, second + 9) == second);
    EXPECT(ask<size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, second + 9) == granule);
    EXPECT(ask<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, second) == 0);
    EXPECT(ask<unsigned long long>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, second) ==
           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK_DRIVER(DRIVER(cuMemUnmap)(second, granule));
    CHECK_DRIVER(DRIVER(cuMemRelease)(handle));
    CHECK_DRIVER(DRIVER(cuMemAddressFree)(base, 3 * granule));
    printf("mapped memory\n");
}

// Many questions at once; what has no value is zero, even where one question alone would be an
// error.
static void many() {
    CUdeviceptr memory;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, BYTES));
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                        CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    unsigned type = 99, managed = 99;
    CUdeviceptr device = 99;
    void* host = &type;
    size_t size = 99;
    void* data[] = {&type, &device, &host, &managed, &size};
    CHECK_DRIVER(DRIVER(cuPointerGetAttributes)(5, attributes, data, memory + 3));
    EXPECT(type == CU_MEMORYTYPE_DEVICE && device == memory + 3 && host == nullptr && managed == 0 && size == BYTES);
    int own = 0;
    CHECK_DRIVER(DRIVER(cuPointerGetAttributes)(5, attributes, data, reinterpret_cast<CUdeviceptr>(&own)));
    EXPECT(type == 0 && managed == 0);
    CHECK_DRIVER(DRIVER(cuMemFree)(memory));
    printf("many questions at once\n");
}

int main() {
    CHECK(cudaFree(nullptr));
    device_memory();
    host_memory();
    mapped_memory();
    many();
    printf("pointer_attributes: done\n");
    return outcome();
}
