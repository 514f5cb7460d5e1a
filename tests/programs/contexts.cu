// Contexts of the driver API: a stack for each thread, contexts made, pushed, popped and destroyed,
// the primary context counted, and memory that belongs to one context.
#include "check.h"
#include "driver.h"

#include <sys/mman.h>

#include <thread>

static CUcontext current() {
    CUcontext context = nullptr;
    CHECK_DRIVER(DRIVER(cuCtxGetCurrent)(&context));
    return context;
}

// Whether the system can read a byte there.
static bool is_readable(const void* byte) {
    int ends[2];
    EXPECT(pipe(ends) == 0);
    const bool is = write(ends[1], byte, 1) == 1;
    close(ends[0]), close(ends[1]);
    return is;
}

// What was page-locked in a context is so no longer: what was allocated is gone, and what was
// registered can be registered again.
static void page_locked_memory_ends_too() {
    const size_t bytes = 4 << 20;
    void *allocated, *own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(own != MAP_FAILED);
    for (int round = 0; round < 2; round++) {
        CHECK(cudaMallocHost(&allocated, bytes));
        CHECK(cudaHostRegister(own, bytes, cudaHostRegisterDefault));
        EXPECT(is_readable(allocated));
        CHECK(cudaDeviceReset());
        printf("allocated memory: %s\n", is_readable(allocated) ? "there" : "gone");
        EXPECT_ERROR(cudaHostUnregister(own), cudaErrorHostMemoryNotRegistered);
        EXPECT_ERROR(cudaFreeHost(allocated), cudaErrorInvalidValue);
        cudaGetLastError();
    }
    EXPECT(is_readable(own) && munmap(own, bytes) == 0);
}

// A reset ends the primary context for all who have it current, until one of them retains it.
static void a_reset_ends_it_for_all_threads(CUdevice device) {
    const auto is_active = [&] {
        unsigned flags = 99;
        int active = 99;
        CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active));
        return active != 0;
    };
    unsigned flags = 99;
    CUcontext primary, again;
    EXPECT(!is_active());
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&primary, device));
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&again, device));
    CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(primary));
    CHECK_DRIVER(DRIVER(cuCtxGetFlags)(&flags));
    EXPECT((flags & CU_CTX_MAP_HOST) != 0);
    size_t unused = 0, later = 0, all = 0;
    CUdeviceptr memory;
    CHECK_DRIVER(DRIVER(cuMemGetInfo)(&unused, &all));
    std::thread([&] {
        CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(primary));
        CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, 256 << 20));
        std::thread([&] { CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxReset)(device)); }).join();
        EXPECT(current() == primary && !is_active());
        EXPECT_DRIVER(DRIVER(cuCtxSynchronize)(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        EXPECT_DRIVER(DRIVER(cuMemAlloc)(&memory, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }).join();
    EXPECT_DRIVER(DRIVER(cuCtxSynchronize)(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_DRIVER(DRIVER(cuCtxGetFlags)(&flags));
    EXPECT(flags == 0);
    CUdevice of_context = 99;
    CHECK_DRIVER(DRIVER(cuCtxGetDevice)(&of_context));
    EXPECT(of_context == device);
    // Once more, and it is there anew, for all of them.
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&again, device));
    EXPECT(again == primary && is_active());
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    CHECK_DRIVER(DRIVER(cuMemGetInfo)(&later, &all));
    EXPECT(later + (128 << 20) > unused);
    // The reset took nobody's use of it away.
    for (bool left : {true, true, false}) {
        CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRelease)(device));
        EXPECT(is_active() == left);
    }
    EXPECT_DRIVER(DRIVER(cuDevicePrimaryCtxRelease)(device), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(nullptr));
}

int main() {
    CHECK_DRIVER(DRIVER(cuInit)(0));
    CUdevice device;
    CHECK_DRIVER(DRIVER(cuDeviceGet)(&device, 0));
    EXPECT(current() == nullptr);

    unsigned flags = 99;
    int active = 99;
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active));
    EXPECT(active == 0);
    // Flags that are set while it is not active are those that it has.
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxSetFlags)(device, CU_CTX_SCHED_YIELD));
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active));
    EXPECT(active == 0 && (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD);
    CUcontext primary, again;
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&primary, device));
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&again, device));
    EXPECT(primary == again);
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active));
    EXPECT((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD);
    EXPECT(active == 1 && current() == nullptr);  // retaining makes nothing current

    // A context that is made becomes the top of the stack.
    CUcontext own;
    CHECK_DRIVER(DRIVER(cuCtxCreate)(&own, nullptr, CU_CTX_SCHED_BLOCKING_SYNC, device));
    EXPECT(own != primary && current() == own);
    CHECK_DRIVER(DRIVER(cuCtxPushCurrent)(primary));
    EXPECT(current() == primary);
    CUcontext popped;
    CHECK_DRIVER(DRIVER(cuCtxPopCurrent)(&popped));
    EXPECT(popped == primary && current() == own);

    CUdevice of_context = 99;
    CHECK_DRIVER(DRIVER(cuCtxGetDevice)(&of_context));
    EXPECT(of_context == device);
    unsigned api = 0;
    CHECK_DRIVER(DRIVER(cuCtxGetApiVersion)(own, &api));
    EXPECT(api >= 3020);
    CHECK_DRIVER(DRIVER(cuCtxGetFlags)(&flags));
    EXPECT((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);

    // Each thread has a stack of its own, empty at first.
    std::thread([&] {
        EXPECT(current() == nullptr);
        CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(primary));
        EXPECT(current() == primary);
    }).join();
    EXPECT(current() == own);

    // Memory is used from the thread and context it was made in, and read from another thread.
    CUdeviceptr memory;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, 400));
    CHECK_DRIVER(DRIVER(cuMemsetD32)(memory, 7, 100));
    std::thread([&] {
        CHECK_DRIVER(DRIVER(cuCtxPushCurrent)(own));
        unsigned value = 0;
        CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(&value, memory + 396, 4));
        EXPECT(value == 7);
    }).join();
    CUcontext owner = nullptr;
    CHECK_DRIVER(DRIVER(cuPointerGetAttribute)(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
    EXPECT(owner == own);
    CUstream stream;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CUcontext of_stream = nullptr;
    CHECK_DRIVER(DRIVER(cuStreamGetCtx)(stream, &of_stream));
    EXPECT(of_stream == own);

    // With it goes all it holds.
    CHECK_DRIVER(DRIVER(cuCtxDestroy)(own));
    EXPECT(current() == nullptr);
    EXPECT_DRIVER(DRIVER(cuCtxPopCurrent)(&popped), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_DRIVER(DRIVER(cuMemAlloc)(&memory, 400), CUDA_ERROR_INVALID_CONTEXT);

    CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(primary));
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, 400));
    CHECK_DRIVER(DRIVER(cuMemFree)(memory));
    CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(nullptr));
    EXPECT(current() == nullptr);
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRelease)(device));
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active));
    EXPECT(active == 1);
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRelease)(device));
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active));
    EXPECT(active == 0);
    EXPECT_DRIVER(DRIVER(cuDevicePrimaryCtxRelease)(device), CUDA_ERROR_INVALID_CONTEXT);

    a_reset_ends_it_for_all_threads(device);

    // The runtime comes after the driver and finds the primary context; a reset makes it anew.
    DeviceArray<int>* array = new DeviceArray<int>(10);
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&again, device));
    EXPECT(current() == again);
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRelease)(device));
    CHECK(cudaDeviceReset());
    EXPECT(cudaFree(array->get()) != cudaSuccess);
    cudaGetLastError();
    DeviceArray<int> after(10);
    after.zero();
    EXPECT(after.download()[9] == 0);
    page_locked_memory_ends_too();
    printf("contexts: done\n");
    return outcome();
}
