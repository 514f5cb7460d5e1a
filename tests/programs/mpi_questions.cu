// What a CUDA-aware MPI asks of pointers, to choose how a message goes. Here it can neither share
// memory with a network card nor with a process elsewhere, and copies through host memory.
#include "check.h"
#include "driver.h"

struct Answers {
    unsigned type = 77;
    bool managed = true;
    int ordinal = -7;
    CUcontext context = nullptr;
    bool legacy = true;
    unsigned long long handles = 77;
};

// All at once, as UCX does.
static Answers ask(const void* pointer) {
    Answers answers;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,       CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,    CU_POINTER_ATTRIBUTE_CONTEXT,
                                    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
    void* places[] = {&answers.type,    &answers.managed, &answers.ordinal,
                      &answers.context, &answers.legacy,  &answers.handles};
    CHECK_DRIVER(DRIVER(cuPointerGetAttributes)(6, wanted, places, CUdeviceptr(pointer)));
    return answers;
}

int main() {
    CHECK(cudaFree(nullptr));
    CUcontext current;
    CHECK_DRIVER(DRIVER(cuCtxGetCurrent)(&current));
    CUdevice device;
    CHECK_DRIVER(DRIVER(cuDeviceGet)(&device, 0));
    for (CUdevice_attribute none : {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
                                    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
                                    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                                    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED}) {
        int value = 77;
        CHECK_DRIVER(DRIVER(cuDeviceGetAttribute)(&value, none, device));
        EXPECT(value == 0);
    }

    DeviceArray<char> memory(1 << 20);
    Answers plain = ask(memory.get() + 100);
    EXPECT(plain.type == CU_MEMORYTYPE_DEVICE && !plain.managed && plain.ordinal == 0);
    EXPECT(plain.context == current && plain.handles == 0);
    // Another process of the same server opens it, and one of another server is refused.
    EXPECT(plain.legacy);
    CUdeviceptr base;
    size_t size;
    CHECK_DRIVER(DRIVER(cuMemGetAddressRange)(&base, &size, CUdeviceptr(memory.get() + 100)));
    EXPECT(base == CUdeviceptr(memory.get()) && size == memory.bytes());
    unsigned on = 1;
    CHECK_DRIVER(DRIVER(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, base));
    CUmemGenericAllocationHandle handle;
    EXPECT(DRIVER(cuMemRetainAllocationHandle)(&handle, memory.get()) == CUDA_ERROR_INVALID_VALUE);
    int file = -1;
    CUresult refused = DRIVER(cuMemGetHandleForAddressRange)(&file, base, 1 << 20,
                                                             CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    EXPECT(refused == CUDA_ERROR_NOT_SUPPORTED && file == -1);

    char *managed, *pinned, pageable[8];
    CHECK(cudaMallocManaged(&managed, 1 << 16));
    CHECK(cudaMallocHost(&pinned, 1 << 16));
    Answers both = ask(managed + 5);
    EXPECT(both.managed && both.ordinal == 0 && both.handles == 0);
    EXPECT(ask(pinned + 5).type == CU_MEMORYTYPE_HOST && !ask(pinned + 5).managed);
    // Of the program's own memory there is nothing to say, and no error.
    Answers none = ask(pageable);
    EXPECT(none.type == 0 && !none.managed && none.context == nullptr && none.handles == 0);
    unsigned type;
    EXPECT(DRIVER(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUdeviceptr(pageable)) ==
           CUDA_ERROR_INVALID_VALUE);
    CHECK(cudaFree(managed));
    CHECK(cudaFreeHost(pinned));
    printf("a CUDA-aware MPI copies through host memory\n");
    return 0;
}
