// Plays a library that launches kernels for its caller: it loads an image, does not look whether
// that worked, and says that all is well, as cuFFT does. What matters is the name of its file.
#include <cuda.h>
#include <dlfcn.h>

static const char to_come[] = ".version 99.0\n.target sm_50\n.address_size 64\n";

extern "C" int transform() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    auto load = reinterpret_cast<CUresult (*)(CUmodule*, const void*)>(dlsym(driver, "cuModuleLoadData"));
    CUmodule module = nullptr;
    load(&module, to_come);
    return 0;
}
