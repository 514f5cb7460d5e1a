// Two processes share memory and events of every device, wherever each of them is. The argument says
// how many devices each machine has.
#include <string>

#include "driver.h"
#include "processes.h"

static const size_t COUNT = 50021;
static const size_t BYTES = COUNT * sizeof(unsigned);

__global__ void put(unsigned* out, unsigned seed) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < COUNT) out[i] = unsigned(i) * 3 + seed;
}

__global__ void add(unsigned* out, unsigned value) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < COUNT) out[i] += value;
}

static unsigned blocks() { return blocks_for(COUNT, 256); }

static void expect(const unsigned* memory, unsigned seed) {
    std::vector<unsigned> values(COUNT);
    CHECK(cudaMemcpy(values.data(), memory, BYTES, cudaMemcpyDefault));
    for (size_t i = 0; i < COUNT; i++) EXPECT(values[i] == unsigned(i) * 3 + seed);
}

struct Offer {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t ready;
};

static int child(int devices, int each) {
    std::vector<unsigned*> memory(devices);
    std::vector<cudaEvent_t> ready(devices);
    std::vector<cudaStream_t> streams(devices);
    for (int device = 0; device < devices; device++) {
        Offer offer = receive_value<Offer>(CHILD_SOCKET);
        // A handle is good on its own machine.
        void* elsewhere;
        int other = (device + each) % devices;
        if (other / each != device / each) {
            CHECK(cudaSetDevice(other));
            EXPECT(cudaIpcOpenMemHandle(&elsewhere, offer.memory, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
            cudaGetLastError();
        }
        CHECK(cudaSetDevice(device));
        CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&memory[device]), offer.memory, cudaIpcMemLazyEnablePeerAccess));
        CHECK(cudaIpcOpenEventHandle(&ready[device], offer.ready));
        CHECK(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking));
    }
    // Behind the other process's work on each device. A stream waits for an event of another machine's
    // device, too; NVIDIA's driver ends a process that does so with one of another device.
    for (int device = 0; device < devices; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamWaitEvent(streams[device], ready[device], 0));
        int next = (device + 1) % devices;
        if (next / each != device / each) CHECK(cudaStreamWaitEvent(streams[device], ready[next], 0));
        add<<<blocks(), 256, 0, streams[device]>>>(memory[device], 5);
        CHECK(cudaGetLastError());
    }
    for (int device = 0; device < devices; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamSynchronize(streams[device]));
        expect(memory[device], 100 * unsigned(device) + 5);
    }
    // From one device's shared memory to the next one's, and back at the end.
    for (int device = 0; device + 1 < devices; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaMemcpyPeer(memory[device + 1], device + 1, memory[device], device, BYTES));
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaSetDevice(devices - 1));
    expect(memory[devices - 1], 5);
    send_value(CHILD_SOCKET, 'd');
    EXPECT(receive_value<char>(CHILD_SOCKET) == 'o');
    for (int device = 0; device < devices; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaIpcCloseMemHandle(memory[device]));
        CHECK(cudaEventDestroy(ready[device]));
    }
    return 0;
}

static int parent(int devices, const char* each) {
    int socket;
    pid_t other = start_child(each, &socket);
    std::vector<unsigned*> memory(devices);
    std::vector<cudaEvent_t> ready(devices);
    for (int device = 0; device < devices; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaMalloc(&memory[device], BYTES));
        CHECK(cudaEventCreateWithFlags(&ready[device], cudaEventInterprocess | cudaEventDisableTiming));
        put<<<blocks(), 256>>>(memory[device], 100 * unsigned(device));
        CHECK(cudaEventRecord(ready[device], nullptr));
        Offer offer;
        CHECK(cudaIpcGetMemHandle(&offer.memory, memory[device]));
        CHECK(cudaIpcGetEventHandle(&offer.ready, ready[device]));
        send_value(socket, offer);
    }
    EXPECT(receive_value<char>(socket) == 'd');
    for (int device = 0; device < devices; device++) {
        CHECK(cudaSetDevice(device));
        expect(memory[device], 5);
    }
    send_value(socket, 'o');
    expect_good_end(other);
    for (int device = 0; device < devices; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaFree(memory[device]));
        CHECK(cudaEventDestroy(ready[device]));
    }
    printf("topology_processes: done\n");
    return 0;
}

int main(int count, char** arguments) {
    EXPECT(count > 1);
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    EXPECT(devices > 1);
    // The child is called so.
    bool is_child = std::string(arguments[0]) == "child";
    return is_child ? child(devices, atoi(arguments[1])) : parent(devices, arguments[1]);
}
