// An image that the device refuses: the error goes to who loads it. If that is a library which does
// not tell its caller, the software device says so at the next wait. The library is the argument.
#include "check.h"
#include "driver.h"

static const char to_come[] = ".version 99.0\n.target sm_50\n.address_size 64\n";

static void wait(const char* when, CUstream stream) {
    const char* name = "?";
    DRIVER(cuGetErrorName)(DRIVER(cuStreamSynchronize)(stream), &name);
    printf("a wait %s: %s\n", when, name);
}

int main(int count, char** arguments) {
    EXPECT(count == 2);
    CUcontext context;
    CUmodule module;
    CUlibrary library;
    CUstream stream;
    CHECK_DRIVER(DRIVER(cuInit)(0));
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(context));
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, 0));
    // The program's own loads, in each way.
    EXPECT_DRIVER(DRIVER(cuModuleLoadData)(&module, to_come), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    wait("after a module", stream);
    EXPECT_DRIVER(DRIVER(cuModuleLoadDataEx)(&module, to_come, 0, nullptr, nullptr), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    wait("after a module with options", stream);
    EXPECT_DRIVER(DRIVER(cuLibraryLoadData)(&library, to_come, nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    wait("after a library", stream);

    void* stand_in = dlopen(arguments[1], RTLD_NOW);
    EXPECT(stand_in != nullptr);
    const auto transform = reinterpret_cast<int (*)()>(dlsym(stand_in, "transform"));
    EXPECT(transform != nullptr && transform() == 0);
    wait("after what a library did", stream);
    wait("once more", stream);
    // That was an error of one image; the device is as usable as before.
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    return outcome();
}
