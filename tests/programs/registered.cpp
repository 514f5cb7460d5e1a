// What nvcc generates for the host, written by hand: registers a fat binary with the runtime,
// launches a kernel of it and uses a variable of it. No CUDA header is needed, so it links with the
// runtime of any release.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct dim3 {
    unsigned x, y, z;
};

extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char* host, char* device, const char* name, int, void*, void*, void*, void*, int*);
void __cudaRegisterVar(void**, char* host, char* device, const char* name, int, size_t, int, int);
int cudaLaunchKernel(const void*, dim3 grid, dim3 block, void** arguments, size_t shared, void* stream);
int cudaMalloc(void**, size_t);
int cudaFree(void*);
int cudaMemcpy(void*, const void*, size_t, int kind);
int cudaMemcpyToSymbol(const void* symbol, const void*, size_t, size_t offset, int kind);
int cudaDeviceSynchronize(void);
const char* cudaGetErrorName(int);
}

// The fat binary, made by nvcc and put here by the assembler.
__asm__(
    ".section .nv_fatbin, \"a\"\n"
    ".balign 8\n"
    "outboard_fat_binary:\n"
    ".incbin \"" FAT_BINARY "\"\n"
    ".previous\n");
extern "C" __attribute__((visibility("hidden"))) const unsigned long long outboard_fat_binary[];

static struct {
    int magic, version;
    const void* data;
    void* unused;
} wrapper __attribute__((section(".nvFatBinSegment"))) = {0x466243b1, 1, outboard_fat_binary, nullptr};

static char scale_on_host[4];
static void affine() {}

static void check(int result, const char* what) {
    if (result != 0) {
        printf("%s gave %s\n", what, cudaGetErrorName(result));
        exit(1);
    }
}

int main() {
    void** handle = __cudaRegisterFatBinary(&wrapper);
    const void* function = reinterpret_cast<const void*>(affine);
    char name[] = "affine", variable[] = "scale";
    __cudaRegisterFunction(handle, static_cast<const char*>(function), name, name, -1, nullptr, nullptr, nullptr, nullptr,
                           nullptr);
    __cudaRegisterVar(handle, scale_on_host, variable, variable, 0, 4, 1, 0);
    __cudaRegisterFatBinaryEnd(handle);

    const int n = 5000;
    std::vector<float> values(n);
    for (int i = 0; i < n; i++) values[i] = static_cast<float>(i);
    void* memory = nullptr;
    float scale = 3, offset = 0.5f;
    int count = n;
    check(cudaMalloc(&memory, n * sizeof(float)), "cudaMalloc");
    check(cudaMemcpy(memory, values.data(), n * sizeof(float), 1), "cudaMemcpy");
    check(cudaMemcpyToSymbol(scale_on_host, &scale, sizeof(scale), 0, 1), "cudaMemcpyToSymbol");
    void* arguments[] = {&memory, &offset, &count};
    check(cudaLaunchKernel(function, {20, 1, 1}, {256, 1, 1}, arguments, 0, nullptr), "cudaLaunchKernel");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaMemcpy(values.data(), memory, n * sizeof(float), 2), "cudaMemcpy");
    check(cudaFree(memory), "cudaFree");
    for (int i = 0; i < n; i++) {
        if (values[i] != static_cast<float>(i) * 3 + 0.5f) {
            printf("wrong at %d\n", i);
            return 1;
        }
    }
    __cudaUnregisterFatBinary(handle);
    printf("registered: right\n");
    return 0;
}
