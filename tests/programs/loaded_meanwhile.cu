// Code is loaded while copies to the host are queued, more than staging memory holds, behind a
// function of the program or a kernel that takes a while. NVIDIA's driver loads it once all streams
// are done. Arguments: how many copies, and MiB of each.
#include <cstring>

#include "check.h"
#include "driver.h"
#include "pause.h"
#include "work.h"

static const char* CODE =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry put(.param .u64 out) {\n"
    "    .reg .u64 %at;\n    .reg .u32 %value;\n"
    "    ld.param.u64 %at, [out];\n    mov.u32 %value, 9;\n    st.global.u32 [%at], %value;\n    ret;\n}\n";

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const size_t queued = size_t(atoi(argv[1])), bytes = size_t(atoi(argv[2])) << 20;
    unsigned char *memory, *host;
    unsigned *out, *state;
    cudaStream_t copies, other;
    CHECK(cudaMalloc(&memory, bytes));
    CHECK(cudaMalloc(&out, sizeof *out));
    CHECK(cudaMalloc(&state, sizeof *state));
    CHECK(cudaMemset(state, 1, sizeof *state));
    CHECK(cudaMallocHost(&host, queued * bytes));
    CHECK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (bool kernel : {false, true}) {
        memset(host, 0, queued * bytes);
        CHECK(cudaMemsetAsync(memory, kernel + 5, bytes, copies));
        if (kernel) {
            work<<<1, 1, 0, copies>>>(state, 10'000'000);
        } else {
            CHECK(cudaLaunchHostFunc(copies, pause, nullptr));
        }
        for (size_t i = 0; i < queued; i++) {
            CHECK(cudaMemcpyAsync(host + i * bytes, memory, bytes, cudaMemcpyDeviceToHost, copies));
        }
        CUmodule module;
        CUfunction put;
        CHECK_DRIVER(DRIVER(cuModuleLoadData)(&module, CODE));
        CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&put, module, "put"));
        void* args[] = {&out};
        CHECK_DRIVER(DRIVER(cuLaunchKernel)(put, 1, 1, 1, 1, 1, 1, 0, other, args, nullptr));
        CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
        CHECK(cudaStreamSynchronize(copies));
        CHECK(cudaDeviceSynchronize());
        for (size_t i = 0; i < queued * bytes; i++) EXPECT(host[i] == kernel + 5);
        printf("behind a %s: done\n", kernel ? "kernel" : "function");
        fflush(stdout);
    }
    return 0;
}
