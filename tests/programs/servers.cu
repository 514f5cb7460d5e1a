// Devices of several servers in one process: each works as if it were alone, addresses are never
// given out twice, and some things that would need two servers at once are refused. The first argument says how
// many servers there are, each with as many devices. With "lost", it waits until the last server is
// gone.
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "check.h"
#include "driver.h"

static const size_t COUNT = 100000;

__device__ unsigned table[64];
__device__ __managed__ unsigned shared_word;

__global__ void fill(unsigned* out, size_t count, unsigned seed) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = unsigned(i) * 3 + seed;
    if (i < 64) table[i] = seed;
}

static unsigned blocks() { return blocks_for(COUNT, 256); }

struct Given {
    std::map<size_t, size_t> ranges;
    void add(const void* memory, size_t bytes) {
        size_t base = reinterpret_cast<size_t>(memory);
        auto next = ranges.upper_bound(base);
        EXPECT(next == ranges.end() || base + bytes <= next->first);
        if (next != ranges.begin()) {
            auto before = std::prev(next);
            EXPECT(before->first + before->second <= base);
        }
        ranges[base] = bytes;
    }
};

struct Memory {
    unsigned *plain, *pitched, *pooled, *managed, *variable;
    size_t pitch;
};

static Memory allocate(int device) {
    Memory memory;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&memory.plain, COUNT * sizeof(unsigned)));
    CHECK(cudaMallocPitch(&memory.pitched, &memory.pitch, 1000, 100));
    CHECK(cudaMallocAsync(&memory.pooled, COUNT * sizeof(unsigned), nullptr));
    CHECK(cudaMallocManaged(&memory.managed, COUNT * sizeof(unsigned)));
    CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&memory.variable), table));
    CHECK(cudaDeviceSynchronize());
    return memory;
}

static void expect_filled(const unsigned* values, unsigned seed) {
    for (size_t i = 0; i < COUNT; i++) EXPECT(values[i] == unsigned(i) * 3 + seed);
}

// Everything that needs one device.
static void work(int device, const Memory& memory, unsigned seed) {
    CHECK(cudaSetDevice(device));
    cudaStream_t stream;
    cudaEvent_t begun, done;
    unsigned* pinned;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&begun));
    CHECK(cudaEventCreate(&done));
    CHECK(cudaMallocHost(&pinned, COUNT * sizeof(unsigned)));
    std::vector<unsigned> values(COUNT);
    CHECK(cudaEventRecord(begun, stream));
    for (unsigned* target : {memory.plain, memory.pooled, memory.managed}) {
        fill<<<blocks(), 256, 0, stream>>>(target, COUNT, seed);
        CHECK(cudaMemcpyAsync(pinned, target, COUNT * sizeof(unsigned), cudaMemcpyDefault, stream));
        CHECK(cudaStreamSynchronize(stream));
        expect_filled(pinned, seed);
        CHECK(cudaMemcpyAsync(target, pinned, COUNT * sizeof(unsigned), cudaMemcpyDefault, stream));
        CHECK(cudaMemcpyAsync(values.data(), target, COUNT * sizeof(unsigned), cudaMemcpyDefault, stream));
        CHECK(cudaStreamSynchronize(stream));
        expect_filled(values.data(), seed);
        seed++;
    }
    CHECK(cudaEventRecord(done, stream));
    CHECK(cudaEventSynchronize(done));
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, begun, done));
    EXPECT(milliseconds >= 0);
    expect_filled(memory.managed, seed - 1);
    memory.managed[0] = 77;
    CHECK(cudaMemcpy(values.data(), memory.managed, 4, cudaMemcpyDefault));
    EXPECT(values[0] == 77);
    unsigned from_table[64];
    CHECK(cudaMemcpyFromSymbol(from_table, table, sizeof from_table));
    EXPECT(from_table[0] == seed - 1 && from_table[63] == seed - 1);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaEventDestroy(begun));
    CHECK(cudaEventDestroy(done));
    CHECK(cudaFreeHost(pinned));
}

// What is refused across servers; `crossing` has what is not.
static void crossing(int here, int there, const Memory& own) {
    int reach = 1;
    CHECK(cudaDeviceCanAccessPeer(&reach, here, there));
    EXPECT(reach == 0);
    CHECK(cudaSetDevice(there));
    CHECK(cudaSetDevice(here));
    EXPECT_ERROR(cudaDeviceEnablePeerAccess(there, 0), cudaErrorPeerAccessUnsupported);
    cudaGetLastError();
    // The device itself is as before.
    work(here, own, 500);
}

static void release(int device, const Memory& memory) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaFree(memory.plain));
    CHECK(cudaFree(memory.pitched));
    CHECK(cudaFreeAsync(memory.pooled, nullptr));
    CHECK(cudaFree(memory.managed));
    CHECK(cudaDeviceSynchronize());
}

static void list(int devices) {
    std::map<std::string, int> places;
    std::map<std::string, int> uuids;
    for (int device = 0; device < devices; device++) {
        char place[64];
        cudaDeviceProp properties;
        CHECK(cudaDeviceGetPCIBusId(place, sizeof place, device));
        CHECK(cudaGetDeviceProperties(&properties, device));
        places[place] = device;
        uuids[std::string(properties.uuid.bytes, 16)] = device;
        int found = -1;
        CHECK(cudaDeviceGetByPCIBusId(&found, place));
        EXPECT(found == device);
    }
    EXPECT(int(places.size()) == devices && int(uuids.size()) == devices);
    printf("%d devices\n", devices);
}

int main(int argc, char** argv) {
    int servers = argc > 1 ? atoi(argv[1]) : 1, devices;
    bool lost = argc > 2 && std::string(argv[2]) == "lost";
    CHECK(cudaGetDeviceCount(&devices));
    list(devices);
    int each = devices / servers;
    EXPECT(each * servers == devices);
    std::vector<Memory> memory;
    Given given;
    for (int device = 0; device < devices; device++) {
        memory.push_back(allocate(device));
        given.add(memory[device].plain, COUNT * sizeof(unsigned));
        given.add(memory[device].pitched, memory[device].pitch * 100);
        given.add(memory[device].pooled, COUNT * sizeof(unsigned));
        given.add(memory[device].managed, COUNT * sizeof(unsigned));
        given.add(memory[device].variable, sizeof table);
    }
    printf("addresses are apart\n");
    for (int device = 0; device < devices; device++) work(device, memory[device], 100 * unsigned(device));
    printf("one after the other\n");
    std::vector<std::thread> threads;
    for (int device = 0; device < devices; device++) {
        threads.emplace_back([&, device] {
            for (unsigned round = 0; round < 5; round++) work(device, memory[device], 100 * unsigned(device) + round);
        });
    }
    for (std::thread& thread : threads) thread.join();
    printf("all at once\n");
    if (servers > 1) {
        crossing(0, devices - 1, memory[0]);
        crossing(devices - 1, 0, memory[devices - 1]);
        printf("what crosses servers is refused\n");
    }
    if (lost) {
        printf("waiting\n");
        fflush(stdout);
        CHECK(cudaSetDevice(devices - 1));
        while (cudaDeviceSynchronize() == cudaSuccess) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        EXPECT(cudaMemset(memory[devices - 1].plain, 0, 4) != cudaSuccess);
        work(0, memory[0], 900);
        printf("the other server goes on\n");
        return 0;
    }
    for (int device = 0; device < devices; device++) release(device, memory[device]);
    printf("servers: done\n");
}
