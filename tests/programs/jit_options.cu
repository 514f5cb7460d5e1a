// Options for the compiler: numbers, logs and their sizes, times, and variables that the program
// gives addresses to.
#include "check.h"
#include "driver.h"

#include <cstring>

static const char GOOD[] = R"(
.version 7.0
.target sm_52
.address_size 64

.visible .entry write(.param .u64 out, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
)";

static const char BAD[] = R"(
.version 7.0
.target sm_52
.address_size 64

.visible .entry wrong()
{
    .reg .b32 %r<2>;
    add.u32 %r1, %r1, %undeclared;
    ret;
}
)";

static void* number(size_t value) { return reinterpret_cast<void*>(value); }

static void numbers() {
    char info[512] = "?", error[512] = "?";
    CUjit_option options[] = {CU_JIT_MAX_REGISTERS,      CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_TARGET_FROM_CUCONTEXT,
                              CU_JIT_GENERATE_LINE_INFO, CU_JIT_CACHE_MODE,         CU_JIT_WALL_TIME,
                              CU_JIT_INFO_LOG_BUFFER,    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_ERROR_LOG_BUFFER,   CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_LOG_VERBOSE,        CU_JIT_FALLBACK_STRATEGY};
    void* values[] = {number(32),  number(3), nullptr,            number(1), number(CU_JIT_CACHE_OPTION_CA), nullptr,
                      info,        number(sizeof info), error,    number(sizeof error), number(1), number(CU_PREFER_PTX)};
    CUmodule module;
    CHECK_DRIVER(DRIVER(cuModuleLoadDataEx)(&module, GOOD, 12, options, values));
    EXPECT(memchr(info, 0, sizeof info) != nullptr && error[0] == 0);
    EXPECT(reinterpret_cast<size_t>(values[7]) <= sizeof info && reinterpret_cast<size_t>(values[9]) <= sizeof error);
    float milliseconds;
    memcpy(&milliseconds, &values[5], sizeof milliseconds);
    EXPECT(milliseconds >= 0 && milliseconds < 1e6f);
    CUfunction write;
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&write, module, "write"));
    DeviceArray<int> out(1);
    int* pointer = out.get();
    int value = 41;
    void* arguments[] = {&pointer, &value};
    CHECK_DRIVER(DRIVER(cuLaunchKernel)(write, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    EXPECT(out.download()[0] == 41);
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
    printf("numbers\n");
}

static void logs() {
    char error[1024] = "", little[16];
    memset(little, 'x', sizeof little);
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {error, number(sizeof error)};
    CUmodule module;
    EXPECT_DRIVER(DRIVER(cuModuleLoadDataEx)(&module, BAD, 2, options, values), CUDA_ERROR_INVALID_PTX);
    EXPECT(error[0] != 0);
    size_t written = reinterpret_cast<size_t>(values[1]);
    EXPECT(written >= strlen(error) && written <= strlen(error) + 1);
    // A buffer that is too small gets what fits.
    values[0] = little;
    values[1] = number(8);
    EXPECT_DRIVER(DRIVER(cuModuleLoadDataEx)(&module, BAD, 2, options, values), CUDA_ERROR_INVALID_PTX);
    EXPECT(memchr(little, 0, 8) != nullptr && little[8] == 'x');
    // A library's options too.
    values[0] = error;
    values[1] = number(sizeof error);
    error[0] = 0;
    CUlibrary library;
    CUresult loaded = DRIVER(cuLibraryLoadData)(&library, BAD, options, values, 2, nullptr, nullptr, 0);
    // A driver may also wait until somebody uses the library.
    EXPECT(loaded == CUDA_SUCCESS || (loaded == CUDA_ERROR_INVALID_PTX && error[0] != 0));
    printf("logs\n");
}

static void threads() {
    CUjit_option options[] = {CU_JIT_THREADS_PER_BLOCK};
    void* values[] = {number(256)};
    CUmodule module;
    CHECK_DRIVER(DRIVER(cuModuleLoadDataEx)(&module, GOOD, 1, options, values));
    // How many the compiler aimed at: at least those.
    unsigned threads;
    memcpy(&threads, &values[0], sizeof threads);
    EXPECT(threads >= 256);
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
    printf("threads\n");
}

int main() {
    CHECK(cudaFree(nullptr));
    numbers();
    logs();
    threads();
    return outcome();
}
