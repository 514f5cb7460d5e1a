// Run-time compilation: CUDA C++ to PTX with NVRTC, loaded and launched through the runtime's
// library API.
#include "check.h"

#include <nvrtc.h>

#include <string>

#define CHECK_NVRTC(call)                                                                            \
    do {                                                                                             \
        nvrtcResult nvrtc_result = (call);                                                           \
        if (nvrtc_result != NVRTC_SUCCESS) {                                                         \
            printf("%s:%d: %s gave %s\n", __FILE__, __LINE__, #call, nvrtcGetErrorString(nvrtc_result)); \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

static const char SOURCE[] = R"(
template <typename T>
__global__ void polynomial(const T* x, T* y, int n, T a, T b, T c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = (a * x[i] + b) * x[i] + c;
    }
}
)";

template <typename T>
static void run(const char* expression) {
    nvrtcProgram program;
    CHECK_NVRTC(nvrtcCreateProgram(&program, SOURCE, "polynomial.cu", 0, nullptr, nullptr));
    CHECK_NVRTC(nvrtcAddNameExpression(program, expression));
    const char* options[] = {"--gpu-architecture=compute_75", "--fmad=false"};
    CHECK_NVRTC(nvrtcCompileProgram(program, 2, options));
    const char* lowered = nullptr;
    CHECK_NVRTC(nvrtcGetLoweredName(program, expression, &lowered));
    std::string name = lowered;
    size_t size = 0;
    CHECK_NVRTC(nvrtcGetPTXSize(program, &size));
    std::string ptx(size, '\0');
    CHECK_NVRTC(nvrtcGetPTX(program, &ptx[0]));
    CHECK_NVRTC(nvrtcDestroyProgram(&program));

    cudaLibrary_t library;
    cudaKernel_t kernel;
    CHECK(cudaLibraryLoadData(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cudaLibraryGetKernel(&kernel, library, name.c_str()));
    const int n = 777;
    std::vector<T> x(n);
    for (int i = 0; i < n; i++) x[i] = static_cast<T>(i % 50);
    DeviceArray<T> dx(x), dy(n);
    T *px = dx.get(), *py = dy.get(), a = 3, b = -2, c = 7;
    int count = n;
    void* arguments[] = {&px, &py, &count, &a, &b, &c};
    CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks_for(n, 64)), dim3(64), arguments, 0, nullptr));
    std::vector<T> y = dy.download();
    for (int i = 0; i < n; i++) EXPECT(y[i] == (a * x[i] + b) * x[i] + c);
    CHECK(cudaLibraryUnload(library));
    printf("%s: right\n", expression);
}

int main() {
    run<float>("polynomial<float>");
    run<double>("polynomial<double>");
    run<int>("polynomial<int>");

    nvrtcProgram program;
    CHECK_NVRTC(nvrtcCreateProgram(&program, "__global__ void k() { wrong }", "wrong.cu", 0, nullptr, nullptr));
    EXPECT(nvrtcCompileProgram(program, 0, nullptr) == NVRTC_ERROR_COMPILATION);
    CHECK_NVRTC(nvrtcDestroyProgram(&program));
    return 0;
}
