// Libraries and their kernels, and modules of the same fat binary: loaded from memory and from a
// file, asked for all that they tell.
#include "check.h"
#include "driver.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unistd.h>

__asm__(
    ".section .nv_fatbin, \"a\"\n"
    ".balign 8\n"
    "outboard_fat_binary:\n"
    ".incbin \"" FAT_BINARY "\"\n"
    "outboard_fat_binary_end:\n"
    ".byte 0\n"
    ".previous\n");
extern "C" __attribute__((visibility("hidden"))) const unsigned char outboard_fat_binary[], outboard_fat_binary_end[];

static CUdevice device;

// affine(values, offset, n): values * scale + offset.
static void run(CUfunction affine, CUdeviceptr scale_address) {
    float scale = 3;
    CHECK_DRIVER(DRIVER(cuMemcpyHtoD)(scale_address, &scale, sizeof scale));
    DeviceArray<float> data(std::vector<float>(64, 2.0f));
    float* pointer = data.get();
    float offset = 1;
    int count = 64;
    void* arguments[] = {&pointer, &offset, &count};
    CHECK_DRIVER(DRIVER(cuLaunchKernel)(affine, 2, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
    for (float value : data.download()) EXPECT(value == 7);
}

static void use(CUlibrary library) {
    CUkernel kernel, listed;
    CHECK_DRIVER(DRIVER(cuLibraryGetKernel)(&kernel, library, "affine"));
    unsigned count = 0;
    CHECK_DRIVER(DRIVER(cuLibraryGetKernelCount)(&count, library));
    EXPECT(count == 1);
    CHECK_DRIVER(DRIVER(cuLibraryEnumerateKernels)(&listed, 1, library));
    EXPECT(listed == kernel);
    const char* name = nullptr;
    CHECK_DRIVER(DRIVER(cuKernelGetName)(&name, kernel));
    EXPECT(strcmp(name, "affine") == 0);
    CUlibrary of = nullptr;
    CHECK_DRIVER(DRIVER(cuKernelGetLibrary)(&of, kernel));
    EXPECT(of == library);
    size_t offset = 99, size = 99;
    CHECK_DRIVER(DRIVER(cuKernelGetParamInfo)(kernel, 1, &offset, &size));
    EXPECT(offset == 8 && size == 4);
    EXPECT_DRIVER(DRIVER(cuKernelGetParamInfo)(kernel, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096, kernel, device));
    int value = 0;
    CHECK_DRIVER(DRIVER(cuKernelGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, device));
    EXPECT(value == 4096);
    CHECK_DRIVER(DRIVER(cuKernelGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device));
    EXPECT(value > 0);
    CHECK_DRIVER(DRIVER(cuKernelSetCacheConfig)(kernel, CU_FUNC_CACHE_PREFER_L1, device));

    CUmodule module, of_function;
    CHECK_DRIVER(DRIVER(cuLibraryGetModule)(&module, library));
    CUfunction function;
    CHECK_DRIVER(DRIVER(cuKernelGetFunction)(&function, kernel));
    CHECK_DRIVER(DRIVER(cuFuncGetModule)(&of_function, function));
    EXPECT(of_function == module);
    CHECK_DRIVER(DRIVER(cuFuncLoad)(function));
    CUfunctionLoadingState state;
    CHECK_DRIVER(DRIVER(cuFuncIsLoaded)(&state, function));
    EXPECT(state == CU_FUNCTION_LOADING_STATE_LOADED);
    CUdeviceptr scale = 0;
    size_t bytes = 0;
    CHECK_DRIVER(DRIVER(cuLibraryGetGlobal)(&scale, &bytes, library, "scale"));
    EXPECT(bytes == 4);
    run(function, scale);
    // A kernel is taken in a function's place.
    run(reinterpret_cast<CUfunction>(kernel), scale);

    EXPECT_DRIVER(DRIVER(cuLibraryGetKernel)(&listed, library, "missing"), CUDA_ERROR_NOT_FOUND);
    EXPECT_DRIVER(DRIVER(cuLibraryGetGlobal)(&scale, &bytes, library, "missing"), CUDA_ERROR_NOT_FOUND);
    void* unified = nullptr;
    // The documented error, or what drivers give where no device has such functions.
    CUresult missing = DRIVER(cuLibraryGetUnifiedFunction)(&unified, library, "missing");
    EXPECT(missing == CUDA_ERROR_NOT_FOUND || missing == CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuLibraryUnload)(library));
}

int main() {
    CHECK(cudaFree(nullptr));
    CHECK_DRIVER(DRIVER(cuDeviceGet)(&device, 0));
    CUlibrary library;

    CUlibraryOption preserved = CU_LIBRARY_BINARY_IS_PRESERVED;
    void* yes = reinterpret_cast<void*>(1);
    CHECK_DRIVER(DRIVER(cuLibraryLoadData)(&library, outboard_fat_binary, nullptr, nullptr, 0, &preserved, &yes, 1));
    use(library);
    printf("from memory that stays\n");

    {
        std::vector<unsigned char> copy(outboard_fat_binary, outboard_fat_binary_end);
        CHECK_DRIVER(DRIVER(cuLibraryLoadData)(&library, copy.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
        std::fill(copy.begin(), copy.end(), static_cast<unsigned char>(0xee));
    }
    use(library);
    printf("from memory that goes\n");

    char path[] = "/tmp/outboard-library-XXXXXX";
    int file = mkstemp(path);
    size_t size = static_cast<size_t>(outboard_fat_binary_end - outboard_fat_binary);
    EXPECT(file >= 0 && write(file, outboard_fat_binary, size) == static_cast<ssize_t>(size));
    close(file);
    EXPECT_DRIVER(DRIVER(cuLibraryLoadFromFile)(&library, path, nullptr, nullptr, 0, &preserved, &yes, 1),
                  CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuLibraryLoadFromFile)(&library, path, nullptr, nullptr, 0, nullptr, nullptr, 0));
    unlink(path);
    use(library);
    EXPECT_DRIVER(DRIVER(cuLibraryLoadFromFile)(&library, path, nullptr, nullptr, 0, nullptr, nullptr, 0),
                  CUDA_ERROR_FILE_NOT_FOUND);
    printf("from a file\n");

    CUmodule module;
    CUfunction affine, listed;
    CHECK_DRIVER(DRIVER(cuModuleLoadFatBinary)(&module, outboard_fat_binary));
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&affine, module, "affine"));
    unsigned count = 0;
    CHECK_DRIVER(DRIVER(cuModuleGetFunctionCount)(&count, module));
    EXPECT(count == 1);
    CHECK_DRIVER(DRIVER(cuModuleEnumerateFunctions)(&listed, 1, module));
    EXPECT(listed == affine);
    CUdeviceptr scale;
    CHECK_DRIVER(DRIVER(cuModuleGetGlobal)(&scale, nullptr, module, "scale"));
    run(affine, scale);
    EXPECT_DRIVER(DRIVER(cuModuleGetFunction)(&affine, module, "missing"), CUDA_ERROR_NOT_FOUND);
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
    printf("as a module\n");
    return outcome();
}
