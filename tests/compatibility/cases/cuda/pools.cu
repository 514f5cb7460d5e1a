//: software = true
//: title = "memory pools, stream-ordered allocation, virtual memory by hand"
//: nvcc = ["-ldl"]
#include "_check.h"
#include <cuda.h>
#include <dlfcn.h>
#include <vector>

// The driver's functions as a program finds them that is not linked with it.
#define DRIVER(name) static decltype(&::name) p_##name = reinterpret_cast<decltype(&::name)>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), #name))
DRIVER(cuMemGetAllocationGranularity);
DRIVER(cuMemAddressReserve);
DRIVER(cuMemAddressFree);
DRIVER(cuMemCreate);
DRIVER(cuMemMap);
DRIVER(cuMemSetAccess);
DRIVER(cuMemUnmap);
DRIVER(cuMemRelease);

__global__ void fill(int *data, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = value + i;
}

static void require(CUresult status, const char *what) { require(status == CUDA_SUCCESS, what); }

int main() {
    const int n = 50000;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaMemPool_t pool;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    uint64_t keep = ~0ull;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    std::vector<int> host(n);
    for (int round = 0; round < 10; round++) {
        int *data;
        CHECK(cudaMallocAsync(&data, n * sizeof(int), stream));
        fill<<<(n + 255) / 256, 256, 0, stream>>>(data, n, round);
        CHECK(cudaMemcpyAsync(host.data(), data, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaFreeAsync(data, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    exact("pool", host.data(), n * sizeof(int));
    uint64_t used = 1;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    printf("used after all was freed: %llu\n", static_cast<unsigned long long>(used));

    CUmemAllocationProp kind = {};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    kind.location.id = 0;
    size_t granularity;
    require(p_cuMemGetAllocationGranularity(&granularity, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "granularity");
    CUdeviceptr range;
    CUmemGenericAllocationHandle parts[2];
    require(p_cuMemAddressReserve(&range, 4 * granularity, 0, 0, 0), "reserve");
    CUmemAccessDesc access = {};
    access.location = kind.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (int part = 0; part < 2; part++) {
        require(p_cuMemCreate(&parts[part], granularity, &kind, 0), "create");
        require(p_cuMemMap(range + part * granularity, granularity, 0, parts[part], 0), "map");
    }
    require(p_cuMemSetAccess(range, 2 * granularity, &access, 1), "set access");
    const int many = int(2 * granularity / sizeof(int));
    fill<<<(many + 255) / 256, 256>>>(reinterpret_cast<int *>(range), many, 9);
    host.resize(many);
    CHECK(cudaMemcpy(host.data(), reinterpret_cast<void *>(range), many * sizeof(int), cudaMemcpyDeviceToHost));
    exact("mapped", host.data(), many * sizeof(int));
    require(p_cuMemUnmap(range, 2 * granularity), "unmap");
    for (CUmemGenericAllocationHandle part : parts) require(p_cuMemRelease(part), "release");
    require(p_cuMemAddressFree(range, 4 * granularity), "free the range");
}
