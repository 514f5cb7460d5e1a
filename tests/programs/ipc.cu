// Memory and events shared by handle between two processes, as torch.multiprocessing shares
// tensors.
//
// `ipc export` prints a handle and waits until it is ended; `ipc open HANDLE` says whether it can
// be opened.
#include "check.h"
#include "driver.h"
#include "processes.h"

static const size_t COUNT = 1 << 20;

__global__ void fill(unsigned* out, unsigned seed, unsigned rounds) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += size_t(gridDim.x) * blockDim.x) {
        unsigned value = unsigned(i) + seed;
        for (unsigned r = 0; r < rounds; r++) value = value * 1664525u + 1013904223u;
        out[i] = value;
    }
}

__global__ void add(unsigned* out, unsigned amount) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += size_t(gridDim.x) * blockDim.x)
        out[i] += amount;
}

static unsigned filled(size_t i, unsigned seed, unsigned rounds) {
    unsigned value = unsigned(i) + seed;
    for (unsigned r = 0; r < rounds; r++) value = value * 1664525u + 1013904223u;
    return value;
}

struct Offer {
    cudaIpcMemHandle_t memory, small;
    cudaIpcEventHandle_t ready;
};

static const unsigned EVENT_FLAGS = cudaEventInterprocess | cudaEventDisableTiming;

static int child() {
    Offer offer = receive_value<Offer>(CHILD_SOCKET);
    unsigned *memory, *again;
    unsigned char* small;
    CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&memory), offer.memory, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), offer.memory, cudaIpcMemLazyEnablePeerAccess));
    EXPECT(memory == again);
    CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&small), offer.small, cudaIpcMemLazyEnablePeerAccess));
    cudaEvent_t ready, done;
    CHECK(cudaIpcOpenEventHandle(&ready, offer.ready));
    CHECK(cudaEventCreateWithFlags(&done, EVENT_FLAGS));
    cudaIpcEventHandle_t handle;
    CHECK(cudaIpcGetEventHandle(&handle, done));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    cudaPointerAttributes about;
    CHECK(cudaPointerGetAttributes(&about, memory + 5));
    EXPECT(about.type == cudaMemoryTypeDevice);

    // The parent's kernel first, in whatever process: the streams know of each other only by the
    // event.
    CHECK(cudaStreamWaitEvent(stream, ready, 0));
    add<<<32, 256, 0, stream>>>(memory, 7);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(done, stream));
    send_value(CHILD_SOCKET, handle);
    std::vector<unsigned char> bytes(1000);
    CHECK(cudaMemcpy(bytes.data(), small, bytes.size(), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes.size(); i++) EXPECT(bytes[i] == 0x77);
    CHECK(cudaMemset(small, 0x78, bytes.size()));
    CHECK(cudaDeviceSynchronize());
    send_value(CHILD_SOCKET, 'd');

    // The parent has looked.
    EXPECT(receive_value<char>(CHILD_SOCKET) == 'o');
    CHECK(cudaEventSynchronize(ready));
    CHECK(cudaIpcCloseMemHandle(memory));
    // Opened twice, so still there.
    unsigned first;
    CHECK(cudaMemcpy(&first, again, sizeof first, cudaMemcpyDeviceToHost));
    EXPECT(first == filled(0, 1, 200) + 7);
    CHECK(cudaIpcCloseMemHandle(again));
    EXPECT(cudaIpcCloseMemHandle(again) != cudaSuccess);
    cudaGetLastError();
    CHECK(cudaIpcCloseMemHandle(small));
    CHECK(cudaEventDestroy(ready));
    CHECK(cudaEventDestroy(done));
    return 0;
}

static int parent() {
    int socket;
    pid_t other = start_child("child", &socket);
    unsigned* memory;
    void *first, *small;
    CHECK(cudaMalloc(&memory, COUNT * sizeof(unsigned)));
    // Not at the start of its pages.
    CHECK(cudaMalloc(&first, 1000));
    CHECK(cudaMalloc(&small, 1000));
    CHECK(cudaMemset(small, 0x77, 1000));
    CHECK(cudaDeviceSynchronize());
    cudaEvent_t ready, done, plain;
    CHECK(cudaEventCreateWithFlags(&ready, EVENT_FLAGS));
    CHECK(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
    Offer offer;
    CHECK(cudaIpcGetMemHandle(&offer.memory, memory));
    CHECK(cudaIpcGetMemHandle(&offer.small, small));
    CHECK(cudaIpcGetEventHandle(&offer.ready, ready));
    cudaIpcEventHandle_t none;
    EXPECT(cudaIpcGetEventHandle(&none, plain) != cudaSuccess);
    cudaGetLastError();
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    fill<<<32, 256, 0, stream>>>(memory, 1, 200);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(ready, stream));
    send_value(socket, offer);

    cudaIpcEventHandle_t handle = receive_value<cudaIpcEventHandle_t>(socket);
    CHECK(cudaIpcOpenEventHandle(&done, handle));
    CHECK(cudaStreamWaitEvent(stream, done, 0));
    std::vector<unsigned> values(COUNT);
    CHECK(cudaMemcpyAsync(values.data(), memory, COUNT * sizeof(unsigned), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaEventQuery(done));
    for (size_t i = 0; i < COUNT; i++) EXPECT(values[i] == filled(i, 1, 200) + 7);
    printf("the other process's kernel ran behind ours\n");
    EXPECT(receive_value<char>(socket) == 'd');
    std::vector<unsigned char> bytes(1000);
    CHECK(cudaMemcpy(bytes.data(), small, bytes.size(), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes.size(); i++) EXPECT(bytes[i] == 0x78);
    printf("a small allocation is shared too\n");
    send_value(socket, 'o');
    expect_good_end(other);
    CHECK(cudaEventDestroy(done));

    // What is no handle, and what is this process's own.
    void* nothing;
    cudaIpcMemHandle_t wrong;
    memset(&wrong, 0x5a, sizeof wrong);
    EXPECT(cudaIpcOpenMemHandle(&nothing, wrong, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
    EXPECT(cudaIpcOpenMemHandle(&nothing, offer.memory, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
    EXPECT(cudaIpcGetMemHandle(&wrong, &wrong) != cudaSuccess);
    cudaGetLastError();
    CHECK(cudaFree(memory));
    CHECK(cudaFree(first));
    CHECK(cudaFree(small));
    printf("ipc: done\n");
    return 0;
}

static int export_one() {
    void* memory;
    cudaIpcMemHandle_t handle;
    CHECK(cudaMalloc(&memory, 1 << 20));
    CHECK(cudaIpcGetMemHandle(&handle, memory));
    for (size_t i = 0; i < sizeof handle; i++) printf("%02x", static_cast<unsigned char>(handle.reserved[i]));
    printf("\nexported\n");
    fflush(stdout);
    for (;;) pause();
}

static int open_one(const char* text) {
    cudaIpcMemHandle_t handle;
    EXPECT(strlen(text) == 2 * sizeof handle);
    for (size_t i = 0; i < sizeof handle; i++) {
        unsigned byte;
        EXPECT(sscanf(text + 2 * i, "%2x", &byte) == 1);
        handle.reserved[i] = static_cast<char>(byte);
    }
    void* memory;
    cudaError_t result = cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess);
    printf("%s\n", result == cudaSuccess ? "opened" : "refused");
    return 0;
}

int main(int count, char** arguments) {
    CHECK(cudaFree(nullptr));
    if (count > 2 && strcmp(arguments[1], "open") == 0) return open_one(arguments[2]);
    if (count > 1 && strcmp(arguments[1], "export") == 0) return export_one();
    return count > 1 && strcmp(arguments[1], "child") == 0 ? child() : parent();
}
