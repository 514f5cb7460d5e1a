// Very many short waits and small copies to the host: from many threads at once, with work that
// fails, with kernels that print, with a fault at the end. Whatever a wait says must be so: what
// was queued before it is done, its output is there, its failures are told.
#include "check.h"
#include "driver.h"

#include <string.h>

#include <algorithm>
#include <thread>

__global__ void add(unsigned* out, unsigned value) { *out += value; }
__global__ void trap() { __trap(); }

static const char* kPrints = R"(
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[13] = {110, 117, 109, 98, 101, 114, 32, 111, 110, 101, 33, 10, 0};
.visible .entry prints()
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<1>;
    mov.u64 %rd0, text;
    cvta.global.u64 %rd0, %rd0;
    mov.u64 %rd1, 0;
    {
    .param .b64 format;
    st.param.b64 [format], %rd0;
    .param .b64 arguments;
    st.param.b64 [arguments], %rd1;
    .param .b32 result;
    call.uni (result), vprintf, (format, arguments);
    ld.param.b32 %r0, [result];
    }
    ret;
}
)";

static const unsigned kRounds = 45;

static void count(unsigned thread) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, thread % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
    DeviceArray<unsigned> words(64);
    words.zero();
    // For streams that do not wait for the default one.
    CHECK(cudaStreamSynchronize(nullptr));
    unsigned *pinned, sum = 0;
    CHECK(cudaMallocHost(&pinned, 64));
    for (unsigned round = 1; round <= kRounds; round++) {
        add<<<1, 1, 0, stream>>>(words.get(), round + thread);
        sum += round + thread;
        unsigned out[16] = {};
        if (round % 3 == 0) {
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaMemcpy(out, words.get(), sizeof out, cudaMemcpyDeviceToHost));
        } else if (round % 3 == 1) {
            CHECK(cudaMemcpyAsync(out, words.get(), sizeof out, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaStreamSynchronize(stream));
        } else {
            CHECK(cudaMemcpyAsync(pinned, words.get(), 64, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaStreamSynchronize(stream));
            out[0] = *static_cast<volatile unsigned*>(pinned);
        }
        if (out[0] != sum) printf("thread %u, round %u: %u, not %u\n", thread, round, out[0], sum);
        EXPECT(out[0] == sum);
    }
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaStreamDestroy(stream));
}

// Copies around the sizes at which another way is taken, with bytes that differ from round to round
// and from place to place.
static void sizes(unsigned thread) {
    const size_t kSizes[] = {1, 63, 64, 127, 4095, 4096, 4097, 40000, 65535, 65536, 65537, 100000};
    const size_t kRoom = 1 << 17, kAround = 256;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    DeviceArray<unsigned char> device(kRoom);
    std::vector<unsigned char> sent(kRoom), back(kRoom);
    for (unsigned round = 0; round < 4; round++) {
        for (size_t bytes : kSizes) {
            for (size_t i = 0; i < bytes; i++) sent[i] = static_cast<unsigned char>(i * 7 + i / 251 + round * 31 + thread + bytes);
            std::fill(back.begin(), back.end(), 0xEE);
            CHECK(cudaMemcpyAsync(device.get(), sent.data(), bytes, cudaMemcpyHostToDevice, stream));
            CHECK(cudaMemcpyAsync(back.data() + kAround, device.get(), bytes, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaStreamSynchronize(stream));
            EXPECT(memcmp(back.data() + kAround, sent.data(), bytes) == 0);
            for (size_t i = 0; i < kAround; i++) EXPECT(back[i] == 0xEE && back[kAround + bytes + i] == 0xEE);
        }
    }
    CHECK(cudaStreamDestroy(stream));
}

int main() {
    CHECK(cudaFree(nullptr));
    count(0);
    sizes(0);
    std::vector<std::thread> threads;
    // More than have a place of their own, one after the other and at once.
    for (unsigned thread = 1; thread <= 20; thread++) threads.emplace_back(count, thread);
    for (std::thread& thread : threads) thread.join();
    for (unsigned thread = 1; thread <= 4; thread++) std::thread(count, thread).join();
    threads.clear();
    for (unsigned thread = 1; thread <= 4; thread++) threads.emplace_back(sizes, thread);
    for (std::thread& thread : threads) thread.join();
    printf("counted\n");

    // A large copy in the background, whose bytes come by another way.
    const size_t bytes = 24 << 20;
    DeviceArray<unsigned char> device(bytes);
    std::vector<unsigned char> host(bytes);
    CHECK(cudaHostRegister(host.data(), bytes, 0));
    for (unsigned round = 1; round <= 10; round++) {
        CHECK(cudaMemsetAsync(device.get(), round, bytes));
        CHECK(cudaMemcpyAsync(host.data(), device.get(), bytes, cudaMemcpyDeviceToHost));
        CHECK(cudaStreamSynchronize(nullptr));
        for (size_t at : {size_t(0), bytes / 2, bytes - 1}) EXPECT(host[at] == round);
    }
    CHECK(cudaHostUnregister(host.data()));
    printf("copied\n");

    // Memory that is no more: the copy fails, and the next one does not.
    unsigned* gone;
    unsigned word = 0;
    CHECK(cudaMalloc(&gone, 4096));
    CHECK(cudaFree(gone));
    EXPECT(cudaMemcpy(&word, gone, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    count(1);
    printf("failed\n");
    fflush(stdout);

    CUmodule module;
    CUfunction prints;
    CHECK_DRIVER(DRIVER(cuModuleLoadData)(&module, kPrints));
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&prints, module, "prints"));
    for (unsigned round = 0; round < 30; round++) {
        CHECK_DRIVER(DRIVER(cuLaunchKernel)(prints, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
        CHECK(cudaStreamSynchronize(nullptr));
        printf("number two!\n");
        fflush(stdout);
    }
    count(2);

    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    trap<<<1, 1, 0, stream>>>();
    const cudaError_t error = cudaStreamSynchronize(stream);
    printf("%s\n", cudaGetErrorName(error));
    EXPECT(error != cudaSuccess);
    EXPECT(cudaMemcpy(&word, device.get(), 4, cudaMemcpyDeviceToHost) == error);
    return 0;
}
