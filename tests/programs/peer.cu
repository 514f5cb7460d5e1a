// Two devices that use each other's memory. With one device, or two that cannot reach each other,
// there is only that to say.
#include "check.h"
#include "driver.h"

static const size_t COUNT = 100000;

__global__ void fill(unsigned* out, size_t count, unsigned seed) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = unsigned(i) * 3 + seed;
}

__global__ void add(unsigned* out, const unsigned* in, size_t count) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = in[i] + 1;
}

__global__ void total(unsigned long long* sum, const unsigned* in, size_t count) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) atomicAdd(sum, static_cast<unsigned long long>(in[i]));
}

static unsigned blocks() { return blocks_for(COUNT, 256); }

static unsigned* on_device(int device, unsigned seed) {
    unsigned* memory;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&memory, COUNT * sizeof(unsigned)));
    fill<<<blocks(), 256>>>(memory, COUNT, seed);
    CHECK(cudaDeviceSynchronize());
    return memory;
}

static void expect_filled(const unsigned* memory, unsigned seed) {
    std::vector<unsigned> values(COUNT);
    CHECK(cudaMemcpy(values.data(), memory, COUNT * sizeof(unsigned), cudaMemcpyDefault));
    for (size_t i = 0; i < COUNT; i++) EXPECT(values[i] == unsigned(i) * 3 + seed);
}

static void copies(unsigned* zero, unsigned* one) {
    CHECK(cudaMemcpyPeer(one, 1, zero, 0, COUNT * sizeof(unsigned)));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(1));
    CHECK(cudaDeviceSynchronize());
    expect_filled(one, 10);
    fill<<<blocks(), 256>>>(one, COUNT, 20);
    CHECK(cudaMemcpyPeerAsync(zero, 0, one, 1, COUNT * sizeof(unsigned), nullptr));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(0));
    expect_filled(zero, 20);
    printf("copies from device to device\n");
}

static void kernels(unsigned* zero, unsigned* one) {
    CHECK(cudaSetDevice(0));
    EXPECT_ERROR(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
    cudaGetLastError();
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    EXPECT_ERROR(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    cudaGetLastError();
    add<<<blocks(), 256>>>(zero, one, COUNT);
    CHECK(cudaDeviceSynchronize());
    expect_filled(zero, 21);
    // The other way, with atomic operations on the far memory.
    CHECK(cudaSetDevice(1));
    CHECK(cudaDeviceEnablePeerAccess(0, 0));
    unsigned long long *sum, result;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&sum, sizeof *sum));
    CHECK(cudaMemset(sum, 0, sizeof *sum));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(1));
    total<<<blocks(), 256>>>(sum, zero, COUNT);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&result, sum, sizeof result, cudaMemcpyDefault));
    EXPECT(result == 3ull * (COUNT * (COUNT - 1) / 2) + 21ull * COUNT);
    CHECK(cudaDeviceDisablePeerAccess(0));
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceDisablePeerAccess(1));
    CHECK(cudaFree(sum));
    printf("kernels on the other device's memory\n");
}

// Memory that is mapped for both, and a pool that both may use.
static void mapped_and_pooled() {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = 1;
    size_t granule;
    CHECK_DRIVER(DRIVER(cuMemGetAllocationGranularity)(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    CHECK_DRIVER(DRIVER(cuMemAddressReserve)(&address, granule, 0, 0, 0));
    CHECK_DRIVER(DRIVER(cuMemCreate)(&handle, granule, &prop, 0));
    CHECK_DRIVER(DRIVER(cuMemMap)(address, granule, 0, handle, 0));
    CUmemAccessDesc both[2] = {};
    for (int device = 0; device < 2; device++) {
        both[device].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        both[device].location.id = device;
        both[device].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    CHECK_DRIVER(DRIVER(cuMemSetAccess)(address, granule, both, 2));
    unsigned* memory = reinterpret_cast<unsigned*>(address);
    CHECK(cudaSetDevice(0));
    fill<<<blocks(), 256>>>(memory, COUNT, 30);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(1));
    add<<<blocks(), 256>>>(memory, memory, COUNT);
    CHECK(cudaDeviceSynchronize());
    expect_filled(memory, 31);
    CHECK_DRIVER(DRIVER(cuMemUnmap)(address, granule));
    CHECK_DRIVER(DRIVER(cuMemRelease)(handle));
    CHECK_DRIVER(DRIVER(cuMemAddressFree)(address, granule));

    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = 0;
    CUmemoryPool pool;
    CHECK_DRIVER(DRIVER(cuMemPoolCreate)(&pool, &props));
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    CHECK_DRIVER(DRIVER(cuMemPoolGetAccess)(&flags, pool, &both[1].location));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_DRIVER(DRIVER(cuMemPoolSetAccess)(pool, &both[1], 1));
    CHECK_DRIVER(DRIVER(cuMemPoolGetAccess)(&flags, pool, &both[1].location));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(cudaSetDevice(0));
    CHECK_DRIVER(DRIVER(cuMemAllocFromPoolAsync)(&address, COUNT * sizeof(unsigned), pool, nullptr));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(1));
    fill<<<blocks(), 256>>>(reinterpret_cast<unsigned*>(address), COUNT, 40);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(0));
    expect_filled(reinterpret_cast<unsigned*>(address), 40);
    CHECK_DRIVER(DRIVER(cuMemFreeAsync)(address, nullptr));
    CHECK(cudaDeviceSynchronize());
    CHECK_DRIVER(DRIVER(cuMemPoolDestroy)(pool));
    printf("mapped for both devices, and from a pool for both\n");
}

int main() {
    int devices, there = 0, back = 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices >= 2) {
        CHECK(cudaDeviceCanAccessPeer(&there, 0, 1));
        CHECK(cudaDeviceCanAccessPeer(&back, 1, 0));
    }
    int self = 99;
    CHECK(cudaDeviceCanAccessPeer(&self, 0, 0));
    EXPECT(self == 0);
    if (!there || !back) {
        printf("%s\n", devices < 2 ? "one device" : "devices that cannot reach each other");
        return outcome();
    }
    int value = 99;
    CHECK(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 1));
    EXPECT(value == 1);
    EXPECT_DRIVER(DRIVER(cuDeviceGetP2PAttribute)(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0),
                  CUDA_ERROR_INVALID_DEVICE);
    unsigned *zero = on_device(0, 10), *one = on_device(1, 11);
    CHECK(cudaSetDevice(0));
    copies(zero, one);
    kernels(zero, one);
    mapped_and_pooled();
    CHECK(cudaFree(zero));
    CHECK(cudaFree(one));
    printf("peer: done\n");
    return outcome();
}
