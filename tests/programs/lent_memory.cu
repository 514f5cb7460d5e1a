// Page-locked memory whose copies an adapter may do by itself: allocated and registered, both ways,
// many queued at once, given up right behind its copies, used by kernels between copies, and gone
// with its context.
//
//   lent_memory [ROUNDS [MEBIBYTES]]    default 3 rounds of 5 MiB.
#include "check.h"

#include <sys/mman.h>

#include <cstring>

__global__ void add(uint32_t* words, size_t count, uint32_t value) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count) words[i] += value;
}

static void add_to(uint32_t* words, size_t count, uint32_t value, cudaStream_t stream) {
    add<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(words, count, value);
    CHECK(cudaGetLastError());
}

static void fill(uint32_t* words, size_t count, uint32_t salt) {
    for (size_t i = 0; i < count; i++) words[i] = (uint32_t)i * 2654435761u + salt;
}

static void expect(const uint32_t* words, size_t count, uint32_t salt, const char* what) {
    for (size_t i = 0; i < count; i++) {
        const uint32_t right = (uint32_t)i * 2654435761u + salt;
        if (words[i] != right) {
            printf("%s: word %zu is %u instead of %u\n", what, i, words[i], right);
            end_wrong();
        }
    }
}

// Page-locked memory, allocated or registered.
struct Host {
    bool registered;
    size_t bytes;
    uint32_t* words;

    Host(bool registered, size_t count) : registered(registered), bytes(count * 4) {
        if (!registered) {
            CHECK(cudaMallocHost(&words, bytes));
            return;
        }
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(memory != MAP_FAILED);
        CHECK(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
        words = (uint32_t*)memory;
    }

    ~Host() {
        if (!registered) {
            CHECK(cudaFreeHost(words));
            return;
        }
        CHECK(cudaHostUnregister(words));
        EXPECT(munmap(words, bytes) == 0);
    }
};

// There, a kernel, and back, in parts of all sizes: waited for one by one, or all at once.
static void there_and_back(bool registered, bool queued, size_t count, uint32_t salt) {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    DeviceArray<uint32_t> device(count);
    Host host(registered, count), back(registered, count);
    fill(host.words, count, salt);
    const size_t parts = 4;
    for (size_t part = 0; part < parts; part++) {
        const size_t from = count * part / parts, end = count * (part + 1) / parts;
        const size_t bytes = (end - from) * 4;
        uint32_t *on_device = device.get() + from, *source = host.words + from, *to = back.words + from;
        if (queued) {
            CHECK(cudaMemcpyAsync(on_device, source, bytes, cudaMemcpyHostToDevice, stream));
            add_to(on_device, end - from, 7, stream);
            CHECK(cudaMemcpyAsync(to, on_device, bytes, cudaMemcpyDeviceToHost, stream));
        } else {
            CHECK(cudaMemcpy(on_device, source, bytes, cudaMemcpyHostToDevice));
            add_to(on_device, end - from, 7, nullptr);
            CHECK(cudaMemcpy(to, on_device, bytes, cudaMemcpyDeviceToHost));
        }
    }
    CHECK(cudaStreamSynchronize(stream));
    expect(host.words, count, salt, "the source");
    expect(back.words, count, salt + 7, "what came back");
    CHECK(cudaStreamDestroy(stream));
}

// The memory is given up as soon as the copies have been queued, and what is there then is another
// allocation's.
static void given_up_at_once(size_t count, uint32_t salt) {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    DeviceArray<uint32_t> device(count), other(count);
    {
        Host host(false, count);
        fill(host.words, count, salt);
        CHECK(cudaMemcpyAsync(device.get(), host.words, count * 4, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemcpyAsync(host.words, other.get(), count * 4, cudaMemcpyDeviceToHost, stream));
    }
    Host next(false, count);
    fill(next.words, count, salt + 1);
    CHECK(cudaMemcpy(other.get(), next.words, count * 4, cudaMemcpyHostToDevice));
    memset(next.words, 0, count * 4);
    CHECK(cudaMemcpyAsync(next.words, device.get(), count * 4, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    expect(next.words, count, salt, "what was copied before the memory went");
    CHECK(cudaMemcpy(next.words, other.get(), count * 4, cudaMemcpyDeviceToHost));
    expect(next.words, count, salt + 1, "what was copied to memory that came afterwards");
    CHECK(cudaStreamDestroy(stream));
}

// Kernels use memory that copies have used, and copies memory that kernels use.
static void used_by_kernels(bool registered, size_t count, uint32_t salt) {
    DeviceArray<uint32_t> device(count);
    Host host(registered, count);
    fill(host.words, count, salt);
    CHECK(cudaMemcpy(device.get(), host.words, count * 4, cudaMemcpyHostToDevice));
    uint32_t* mapped;
    CHECK(cudaHostGetDevicePointer((void**)&mapped, host.words, 0));
    add_to(mapped, count, 1, nullptr);
    add_to(device.get(), count, 5, nullptr);
    CHECK(cudaDeviceSynchronize());
    expect(host.words, count, salt + 1, "what a kernel has written");
    CHECK(cudaMemcpy(host.words, device.get(), count * 4, cudaMemcpyDeviceToHost));
    add_to(mapped, count, 1, nullptr);
    CHECK(cudaMemcpy(device.get(), host.words, count * 4, cudaMemcpyHostToDevice));
    expect(host.words, count, salt + 6, "what a kernel has written where a copy had");
    EXPECT(device.download()[count - 1] == (uint32_t)(count - 1) * 2654435761u + salt + 6);
}

// Memory is registered in a context that ends, and goes. Other memory comes to lie there, and is
// registered from an earlier address on.
static void gone_with_its_context(size_t count, uint32_t salt) {
    const size_t page = 4096, bytes = count * 4 + page;
    void* memory = nullptr;
    for (size_t from : {page, size_t(0)}) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (memory != nullptr ? MAP_FIXED : 0);
        memory = mmap(memory, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        EXPECT(memory != MAP_FAILED);
        CHECK(cudaHostRegister((char*)memory + from, bytes - from, cudaHostRegisterDefault));
        uint32_t* words = (uint32_t*)((char*)memory + from);
        fill(words, count, salt);
        {
            DeviceArray<uint32_t> device(count);
            CHECK(cudaMemcpy(device.get(), words, count * 4, cudaMemcpyHostToDevice));
            memset(words, 0, count * 4);
            CHECK(cudaMemcpy(words, device.get(), count * 4, cudaMemcpyDeviceToHost));
        }
        expect(words, count, salt++, "what was copied in a new context");
        CHECK(cudaDeviceReset());
    }
    EXPECT(munmap(memory, bytes) == 0);
}

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 3;
    const size_t count = (argc > 2 ? strtoull(argv[2], nullptr, 10) : 5) * (1 << 18) + 77;
    for (int round = 0; round < rounds; round++) {
        for (bool registered : {false, true}) {
            for (bool queued : {false, true}) {
                there_and_back(registered, queued, count, 100 * round + 10 * registered + queued);
            }
            used_by_kernels(registered, count, 1000 + round);
        }
        given_up_at_once(count, 2000 + round);
        gone_with_its_context(count, 3000 + 10 * round);
    }
    printf("%d rounds: right\n", rounds);
    return 0;
}
