// Virtual memory: addresses that are reserved, physical memory that is mapped there, and who may
// use it.
#include "check.h"
#include "driver.h"

static const size_t MIB = 1 << 20;
static CUmemAllocationProp prop;
static CUmemAccessDesc both_ways;
static size_t granule;

__global__ void fill(unsigned* out, size_t count, unsigned seed) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
        out[i] = unsigned(i) * 2654435761u + seed;
}

static CUmemGenericAllocationHandle create(size_t bytes) {
    CUmemGenericAllocationHandle handle;
    CHECK_DRIVER(DRIVER(cuMemCreate)(&handle, bytes, &prop, 0));
    return handle;
}

static CUdeviceptr reserve(size_t bytes) {
    CUdeviceptr address = 0;
    CHECK_DRIVER(DRIVER(cuMemAddressReserve)(&address, bytes, 0, 0, 0));
    EXPECT(address != 0 && address % granule == 0);
    return address;
}

static bool filled(CUdeviceptr from, size_t count, unsigned seed) {
    std::vector<unsigned> out(count);
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(out.data(), from, count * sizeof(unsigned)));
    for (size_t i = 0; i < count; i++)
        if (out[i] != unsigned(i) * 2654435761u + seed) return false;
    return true;
}

static unsigned long long access_at(CUdeviceptr address) {
    unsigned long long flags = 99;
    CHECK_DRIVER(DRIVER(cuMemGetAccess)(&flags, &both_ways.location, address));
    return flags;
}

// A range that grows, as allocators with expandable segments have them: copies and kernels cross
// the seams.
static void growing() {
    const size_t piece = granule, pieces = 4, bytes = piece * pieces;
    CUdeviceptr base = reserve(bytes * 2);
    std::vector<CUmemGenericAllocationHandle> handles;
    for (size_t i = 0; i < pieces; i++) {
        handles.push_back(create(piece));
        CHECK_DRIVER(DRIVER(cuMemMap)(base + i * piece, piece, 0, handles[i], 0));
        EXPECT(access_at(base + i * piece) == 0);
        CHECK_DRIVER(DRIVER(cuMemSetAccess)(base + i * piece, piece, &both_ways, 1));
        EXPECT(access_at(base + i * piece) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    size_t count = bytes / sizeof(unsigned);
    fill<<<64, 256>>>(reinterpret_cast<unsigned*>(base), count, 17);
    CHECK(cudaGetLastError());
    EXPECT(filled(base, count, 17));
    // Within one mapping and across seams, on the device and from the host.
    CHECK_DRIVER(DRIVER(cuMemsetD8)(base + piece - 1000, 0x5a, 2000));
    std::vector<unsigned char> seam(2002);
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(seam.data(), base + piece - 1001, 2002));
    for (size_t i = 1; i < 2001; i++) EXPECT(seam[i] == 0x5a);
    CHECK_DRIVER(DRIVER(cuMemcpyDtoD)(base + 2 * piece + 8, base, piece + 64));
    CHECK_DRIVER(DRIVER(cuMemcpyHtoD)(base + 3 * piece - 1001, seam.data(), 2002));
    std::vector<unsigned char> back(2002);
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(back.data(), base + 3 * piece - 1001, 2002));
    EXPECT(back == seam);
    printf("four mappings in a row are one array\n");

    // Beyond the mappings nothing is there.
    EXPECT_DRIVER(DRIVER(cuMemcpyDtoH)(back.data(), base + bytes, 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemcpyHtoD)(base + bytes - 2, seam.data(), 4), CUDA_ERROR_INVALID_VALUE);

    // A hole, filled again with other memory.
    CHECK_DRIVER(DRIVER(cuMemUnmap)(base + piece, piece));
    EXPECT_DRIVER(DRIVER(cuMemcpyDtoH)(back.data(), base + piece - 2, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuMemRelease)(handles[1]));
    handles[1] = create(piece);
    CHECK_DRIVER(DRIVER(cuMemMap)(base + piece, piece, 0, handles[1], 0));
    CHECK_DRIVER(DRIVER(cuMemSetAccess)(base, bytes, &both_ways, 1));
    fill<<<64, 256>>>(reinterpret_cast<unsigned*>(base), count, 18);
    EXPECT(filled(base, count, 18));
    CHECK_DRIVER(DRIVER(cuMemUnmap)(base, bytes));
    for (CUmemGenericAllocationHandle handle : handles) CHECK_DRIVER(DRIVER(cuMemRelease)(handle));
    CHECK_DRIVER(DRIVER(cuMemAddressFree)(base, bytes * 2));
    printf("a hole was filled again\n");
}

// The same memory at two addresses, and memory that outlives its handle.
static void twice() {
    CUmemGenericAllocationHandle handle = create(granule);
    CUdeviceptr one = reserve(granule), two = reserve(granule);
    CHECK_DRIVER(DRIVER(cuMemMap)(one, granule, 0, handle, 0));
    CHECK_DRIVER(DRIVER(cuMemMap)(two, granule, 0, handle, 0));
    CHECK_DRIVER(DRIVER(cuMemSetAccess)(one, granule, &both_ways, 1));
    CHECK_DRIVER(DRIVER(cuMemSetAccess)(two, granule, &both_ways, 1));
    fill<<<8, 256>>>(reinterpret_cast<unsigned*>(one), granule / 4, 3);
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    EXPECT(filled(two, granule / 4, 3));

    CUmemGenericAllocationHandle again = 0;
    CHECK_DRIVER(DRIVER(cuMemRelease)(handle));
    CHECK_DRIVER(DRIVER(cuMemUnmap)(one, granule));
    EXPECT(filled(two, granule / 4, 3));
    CHECK_DRIVER(DRIVER(cuMemRetainAllocationHandle)(&again, reinterpret_cast<void*>(two + 4096)));
    CHECK_DRIVER(DRIVER(cuMemUnmap)(two, granule));
    CHECK_DRIVER(DRIVER(cuMemMap)(one, granule, 0, again, 0));
    CHECK_DRIVER(DRIVER(cuMemSetAccess)(one, granule, &both_ways, 1));
    EXPECT(filled(one, granule / 4, 3));
    CUmemAllocationProp asked = {};
    CHECK_DRIVER(DRIVER(cuMemGetAllocationPropertiesFromHandle)(&asked, again));
    EXPECT(asked.type == prop.type && asked.location.type == prop.location.type && asked.location.id == prop.location.id);
    CHECK_DRIVER(DRIVER(cuMemRelease)(again));
    CHECK_DRIVER(DRIVER(cuMemUnmap)(one, granule));
    CHECK_DRIVER(DRIVER(cuMemAddressFree)(one, granule));
    CHECK_DRIVER(DRIVER(cuMemAddressFree)(two, granule));
    printf("memory at two addresses, kept by its mappings\n");
}

static void mistakes() {
    CUdeviceptr base = reserve(2 * granule), none;
    CUmemGenericAllocationHandle handle = create(granule);
    EXPECT_DRIVER(DRIVER(cuMemAddressReserve)(&none, granule + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemAddressReserve)(&none, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemCreate)(&handle, granule + 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemMap)(base + 4096, granule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuMemMap)(base, granule, 0, handle, 0));
    EXPECT_DRIVER(DRIVER(cuMemMap)(base, granule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemSetAccess)(base, 2 * granule, &both_ways, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuMemUnmap)(base, granule));
    CHECK_DRIVER(DRIVER(cuMemRelease)(handle));
    CHECK_DRIVER(DRIVER(cuMemAddressFree)(base, 2 * granule));
}

int main() {
    CHECK(cudaFree(nullptr));
    CUdevice device;
    CHECK_DRIVER(DRIVER(cuCtxGetDevice)(&device));
    int supported = 0;
    CHECK_DRIVER(DRIVER(cuDeviceGetAttribute)(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device));
    EXPECT(supported == 1);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    both_ways.location = prop.location;
    both_ways.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_DRIVER(DRIVER(cuMemGetAllocationGranularity)(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    printf("granularity: %zu MiB\n", granule / MIB);
    growing();
    twice();
    mistakes();
    printf("virtual_memory: done\n");
    return outcome();
}
