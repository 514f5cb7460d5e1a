// The linker of the driver: PTX from memory and from a file becomes one image, which is loaded and
// run; what is wrong is told in the log.
#include "check.h"
#include "driver.h"

#include <cstring>
#include <string>
#include <unistd.h>

// A kernel that calls what it does not have.
static const char CALLER[] = R"(
.version 7.0
.target sm_52
.address_size 64

.extern .func (.param .b32 result) twice(.param .b32 value);
.extern .global .align 4 .u32 offset;

.visible .entry apply(.param .u64 data)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [data];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r2, [%rd4];
    {
        .param .b32 in;
        .param .b32 out;
        st.param.b32 [in], %r2;
        call.uni (out), twice, (in);
        ld.param.b32 %r3, [out];
    }
    ld.global.u32 %r4, [offset];
    add.u32 %r5, %r3, %r4;
    st.global.u32 [%rd4], %r5;
    ret;
}
)";

// What that kernel lacks.
static const char CALLEE[] = R"(
.version 7.0
.target sm_52
.address_size 64

.visible .global .align 4 .u32 offset = 100;

.visible .func (.param .b32 result) twice(.param .b32 value)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [value];
    add.u32 %r2, %r1, %r1;
    st.param.b32 [result], %r2;
    ret;
}
)";

static const char NONSENSE[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry broken() { this is no instruction; }
)";

struct Link {
    CUlinkState state = nullptr;
    char info[4096] = "";
    char error[4096] = "";
    CUjit_option options[6] = {CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                               CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                               CU_JIT_WALL_TIME,        CU_JIT_LOG_VERBOSE};
    void* values[6] = {info, reinterpret_cast<void*>(sizeof info), error, reinterpret_cast<void*>(sizeof error), nullptr,
                       reinterpret_cast<void*>(1)};

    Link() { CHECK_DRIVER(DRIVER(cuLinkCreate)(6, options, values, &state)); }
    ~Link() { CHECK_DRIVER(DRIVER(cuLinkDestroy)(state)); }

    CUresult add(const char* ptx, const char* name) {
        return DRIVER(cuLinkAddData)(state, CU_JIT_INPUT_PTX, const_cast<char*>(ptx), strlen(ptx) + 1, name, 0, nullptr,
                                     nullptr);
    }
};

// Loads the image and runs its kernel.
static void run(void* image) {
    CUmodule module;
    CUfunction apply;
    CHECK_DRIVER(DRIVER(cuModuleLoadData)(&module, image));
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&apply, module, "apply"));
    std::vector<int> numbers(32);
    for (int i = 0; i < 32; i++) numbers[i] = i;
    DeviceArray<int> data(numbers);
    int* pointer = data.get();
    void* arguments[] = {&pointer};
    CHECK_DRIVER(DRIVER(cuLaunchKernel)(apply, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
    numbers = data.download();
    for (int i = 0; i < 32; i++) EXPECT(numbers[i] == 2 * i + 100);
    CUdeviceptr offset;
    size_t bytes = 0;
    CHECK_DRIVER(DRIVER(cuModuleGetGlobal)(&offset, &bytes, module, "offset"));
    EXPECT(bytes == 4);
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
}

static std::string file_of(const char* text) {
    char path[] = "/tmp/outboard-linker-XXXXXX";
    int file = mkstemp(path);
    EXPECT(file >= 0);
    EXPECT(write(file, text, strlen(text)) == static_cast<ssize_t>(strlen(text)));
    close(file);
    return path;
}

static void from_memory() {
    Link link;
    CHECK_DRIVER(link.add(CALLER, "caller"));
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void* value = reinterpret_cast<void*>(32);
    CHECK_DRIVER(DRIVER(cuLinkAddData)(link.state, CU_JIT_INPUT_PTX, const_cast<char*>(CALLEE), sizeof CALLEE, "callee", 1,
                                       &option, &value));
    void* image = nullptr;
    size_t bytes = 0;
    CHECK_DRIVER(DRIVER(cuLinkComplete)(link.state, &image, &bytes));
    EXPECT(image != nullptr && bytes > 64 && memcmp(image, "\x7f" "ELF", 4) == 0);
    EXPECT(link.error[0] == 0);
    float milliseconds;
    memcpy(&milliseconds, &link.values[4], sizeof milliseconds);
    EXPECT(milliseconds >= 0);
    // The image may be kept, and linked into another.
    std::vector<char> kept(static_cast<char*>(image), static_cast<char*>(image) + bytes);
    run(image);
    run(kept.data());
    printf("linked from memory\n");
}

static void from_files() {
    std::string caller = file_of(CALLER), callee = file_of(CALLEE);
    Link link;
    CHECK_DRIVER(DRIVER(cuLinkAddFile)(link.state, CU_JIT_INPUT_PTX, caller.c_str(), 0, nullptr, nullptr));
    CHECK_DRIVER(DRIVER(cuLinkAddFile)(link.state, CU_JIT_INPUT_PTX, callee.c_str(), 0, nullptr, nullptr));
    void* image = nullptr;
    CHECK_DRIVER(DRIVER(cuLinkComplete)(link.state, &image, nullptr));
    run(image);
    unlink(caller.c_str());
    unlink(callee.c_str());
    Link another;
    // Drivers differ in the error.
    CUresult missing = DRIVER(cuLinkAddFile)(another.state, CU_JIT_INPUT_PTX, caller.c_str(), 0, nullptr, nullptr);
    EXPECT(missing == CUDA_ERROR_FILE_NOT_FOUND || missing == CUDA_ERROR_INVALID_VALUE);
    printf("linked from files\n");
}

static void refused() {
    {
        Link link;
        EXPECT_DRIVER(link.add(NONSENSE, "nonsense"), CUDA_ERROR_INVALID_PTX);
        EXPECT(link.error[0] != 0);
    }
    Link link;
    CHECK_DRIVER(link.add(CALLER, "caller"));
    void* image = nullptr;
    size_t bytes = 0;
    // Which error this is differs between drivers; the log names what is missing.
    EXPECT(DRIVER(cuLinkComplete)(link.state, &image, &bytes) != CUDA_SUCCESS);
    EXPECT(strstr(link.error, "twice") != nullptr || strstr(link.error, "offset") != nullptr);
    EXPECT_DRIVER(DRIVER(cuLinkAddData)(link.state, CU_JIT_INPUT_PTX, nullptr, 1, "null", 0, nullptr, nullptr),
                  CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuLinkCreate)(0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

int main() {
    CHECK(cudaFree(nullptr));
    from_memory();
    from_files();
    refused();
    return outcome();
}
