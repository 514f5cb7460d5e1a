// Many copies queued at once: into one buffer, both ways, and behind a stream that stands still
// while another one works. From and to memory that the driver allocates, and memory of the
// program's own that is registered.

#include "check.h"
#include "driver.h"

#include <sys/mman.h>

#include <cstring>
#include <vector>

const size_t MIB = 1 << 20;

static bool registered;

// Page-locked memory, and its end.
static char *host_memory(size_t bytes) {
    void *memory;
    if (!registered) {
        CHECK(cudaMallocHost(&memory, bytes));
        return (char *)memory;
    }
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(memory != MAP_FAILED);
    CHECK(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
    return (char *)memory;
}

static void free_host(char *memory, size_t bytes) {
    if (!registered) {
        CHECK(cudaFreeHost(memory));
        return;
    }
    CHECK(cudaHostUnregister(memory));
    EXPECT(munmap(memory, bytes) == 0);
}

__global__ void fill(unsigned *words, size_t count, unsigned value) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count) words[i] = value + (unsigned)i;
}

static void put(void *device, size_t bytes, unsigned value, cudaStream_t stream) {
    size_t words = bytes / 4;
    fill<<<(unsigned)((words + 255) / 256), 256, 0, stream>>>((unsigned *)device, words, value);
    CHECK(cudaGetLastError());
}

static void expect(const void *host, size_t bytes, unsigned value, const char *what) {
    const unsigned *words = (const unsigned *)host;
    for (size_t i = 0; i < bytes / 4; i++) {
        if (words[i] != value + (unsigned)i) {
            fprintf(stderr, "%s: word %zu is %u instead of %u\n", what, i, words[i], value + (unsigned)i);
            exit(1);
        }
    }
}

// The last of many copies into one buffer stays, and parts of it are the last's that wrote them.
static void into_one_buffer(size_t bytes, int count) {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    char *device, *host = host_memory(bytes + bytes / 2);
    CHECK(cudaMalloc(&device, bytes * count));
    for (int i = 0; i < count; i++) put(device + i * bytes, bytes, i << 20, stream);
    for (int i = 0; i < count; i++) {
        CHECK(cudaMemcpyAsync(host, device + i * bytes, bytes, cudaMemcpyDeviceToHost, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    expect(host, bytes, (count - 1) << 20, "the last copy into one buffer");
    for (int i = 0; i < count; i++) {
        // Every other one writes half of what the one before wrote.
        char *to = host + (i % 2) * (bytes / 2);
        CHECK(cudaMemcpyAsync(to, device + i * bytes, bytes, cudaMemcpyDeviceToHost, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    expect(host + bytes / 2, bytes, (count - 1) << 20, "the last copy into half of it");
    expect(host, bytes / 2, (count - 2) << 20, "the half before it");
    CHECK(cudaFree(device));
    free_host(host, bytes + bytes / 2);
    CHECK(cudaStreamDestroy(stream));
}

// Copies into one buffer by two streams, in an order that events make.
static void by_two_streams(size_t bytes, int count) {
    cudaStream_t streams[2];
    cudaEvent_t event;
    for (cudaStream_t &stream : streams) CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    char *device, *host = host_memory(bytes);
    CHECK(cudaMalloc(&device, bytes * count));
    for (int i = 0; i < count; i++) put(device + i * bytes, bytes, i << 20, streams[0]);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < count; i++) {
        cudaStream_t stream = streams[i / 2 % 2];
        CHECK(cudaStreamWaitEvent(stream, event, 0));
        CHECK(cudaMemcpyAsync(host, device + i * bytes, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaEventRecord(event, stream));
    }
    CHECK(cudaDeviceSynchronize());
    expect(host, bytes, (count - 1) << 20, "the last copy of two streams");
    CHECK(cudaFree(device));
    free_host(host, bytes);
}

// Both ways at once, over buffers that are used again and again: what is copied down goes up again.
static void both_ways(size_t bytes, int count) {
    cudaStream_t down, up;
    cudaEvent_t came[4], gone[4];
    CHECK(cudaStreamCreate(&down));
    CHECK(cudaStreamCreate(&up));
    char *from, *to, *host[4];
    CHECK(cudaMalloc(&from, bytes));
    CHECK(cudaMalloc(&to, bytes * count));
    for (int i = 0; i < 4; i++) {
        host[i] = host_memory(bytes);
        CHECK(cudaEventCreateWithFlags(&came[i], cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&gone[i], cudaEventDisableTiming));
    }
    for (int i = 0; i < count; i++) {
        int slot = i % 4;
        if (i >= 4) CHECK(cudaStreamWaitEvent(down, gone[slot], 0));
        put(from, bytes, i << 20, down);
        CHECK(cudaMemcpyAsync(host[slot], from, bytes, cudaMemcpyDeviceToHost, down));
        CHECK(cudaEventRecord(came[slot], down));
        CHECK(cudaStreamWaitEvent(up, came[slot], 0));
        CHECK(cudaMemcpyAsync(to + i * bytes, host[slot], bytes, cudaMemcpyHostToDevice, up));
        CHECK(cudaEventRecord(gone[slot], up));
    }
    CHECK(cudaDeviceSynchronize());
    std::vector<char> all(bytes * count);
    CHECK(cudaMemcpy(all.data(), to, all.size(), cudaMemcpyDeviceToHost));
    for (int i = 0; i < count; i++) expect(all.data() + i * bytes, bytes, i << 20, "what went down and up again");
    for (int i = 0; i < 4; i++) free_host(host[i], bytes);
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
}

// A stream that stands still, with more copies than any staging memory holds, holds up no other
// stream.
static void behind_a_stream_that_stands_still(size_t bytes, int count) {
    cudaStream_t still, moves;
    CHECK(cudaStreamCreateWithFlags(&still, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&moves, cudaStreamNonBlocking));
    unsigned *gate;
    char *device, *other, *host = host_memory(bytes * count), *back = host_memory(bytes * count);
    char *beside = host_memory(bytes);
    CHECK(cudaMalloc(&gate, 4));
    CHECK(cudaMemset(gate, 0, 4));
    CHECK(cudaMalloc(&device, bytes * count));
    CHECK(cudaMalloc(&other, bytes));
    unsigned *words = (unsigned *)host;
    for (int i = 0; i < count; i++) {
        for (size_t word = 0; word < bytes / 4; word++) words[i * (bytes / 4) + word] = (i << 20) + (unsigned)word;
    }
    memset(back, 0, bytes * count);
    CHECK(cudaDeviceSynchronize());
    CHECK_DRIVER(DRIVER(cuStreamWaitValue32)((CUstream)still, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    for (int i = 0; i < count; i++) {
        CHECK(cudaMemcpyAsync(device + i * bytes, host + i * bytes, bytes, cudaMemcpyHostToDevice, still));
    }
    for (int i = 0; i < count; i++) {
        CHECK(cudaMemcpyAsync(back + i * bytes, device + i * bytes, bytes, cudaMemcpyDeviceToHost, still));
    }
    if (cudaStreamQuery(still) != cudaErrorNotReady) {
        fprintf(stderr, "the stream does not stand still\n");
        exit(1);
    }
    std::vector<char> pageable(bytes);
    for (int turn = 1; turn <= 3; turn++) {
        put(other, bytes, turn << 24, moves);
        CHECK(cudaMemcpyAsync(pageable.data(), other, bytes, cudaMemcpyDeviceToHost, moves));
        CHECK(cudaStreamSynchronize(moves));
        expect(pageable.data(), bytes, turn << 24, "a copy to the host beside a stream that stands still");
        CHECK(cudaMemcpyAsync(beside, other, bytes, cudaMemcpyDeviceToHost, moves));
        CHECK(cudaMemcpyAsync(other, beside, bytes, cudaMemcpyHostToDevice, moves));
        CHECK(cudaStreamSynchronize(moves));
        expect(beside, bytes, turn << 24, "an asynchronous copy beside a stream that stands still");
        for (char &byte : pageable) byte = (char)turn;
        CHECK(cudaMemcpyAsync(other, pageable.data(), bytes, cudaMemcpyHostToDevice, moves));
        CHECK(cudaStreamSynchronize(moves));
    }
    CHECK_DRIVER(DRIVER(cuStreamWriteValue32)((CUstream)moves, (CUdeviceptr)gate, 1, 0));
    CHECK(cudaStreamSynchronize(still));
    for (int i = 0; i < count; i++) expect(back + i * bytes, bytes, i << 20, "copies behind the stream that stood still");
    free_host(host, bytes * count);
    free_host(back, bytes * count);
    free_host(beside, bytes);
    CHECK(cudaFree(device));
    CHECK(cudaFree(other));
    CHECK(cudaFree(gate));
}

// Streams that stood still go on at once, each with more copies than there is staging memory for all.
static void several_that_stood_still(size_t bytes, int count, int many, cudaMemcpyKind first) {
    std::vector<cudaStream_t> streams(many);
    cudaStream_t opens;
    CHECK(cudaStreamCreateWithFlags(&opens, cudaStreamNonBlocking));
    unsigned *gate;
    char *device, *host = host_memory(bytes * count), *back = host_memory(bytes * count);
    CHECK(cudaMalloc(&gate, 4));
    CHECK(cudaMemset(gate, 0, 4));
    CHECK(cudaMalloc(&device, bytes * count));
    unsigned *words = (unsigned *)host;
    for (size_t word = 0; word < bytes * count / 4; word++) words[word] = (unsigned)word;
    CHECK(cudaMemset(device, 0, bytes * count));
    if (first == cudaMemcpyDeviceToHost) CHECK(cudaMemcpy(device, host, bytes * count, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
    for (cudaStream_t &stream : streams) {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK_DRIVER(DRIVER(cuStreamWaitValue32)((CUstream)stream, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    }
    for (int i = 0; i < count; i++) {
        cudaStream_t stream = streams[i % many];
        char *there = device + i * bytes;
        if (first == cudaMemcpyHostToDevice) {
            CHECK(cudaMemcpyAsync(there, host + i * bytes, bytes, cudaMemcpyHostToDevice, stream));
        } else {
            CHECK(cudaMemcpyAsync(back + i * bytes, there, bytes, cudaMemcpyDeviceToHost, stream));
        }
    }
    CHECK_DRIVER(DRIVER(cuStreamWriteValue32)((CUstream)opens, (CUdeviceptr)gate, 1, 0));
    for (cudaStream_t stream : streams) CHECK(cudaStreamSynchronize(stream));
    if (first == cudaMemcpyHostToDevice) CHECK(cudaMemcpy(back, device, bytes * count, cudaMemcpyDeviceToHost));
    expect(back, bytes * count, 0, "copies of several streams that stood still");
    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(opens));
    free_host(host, bytes * count);
    free_host(back, bytes * count);
    CHECK(cudaFree(device));
    CHECK(cudaFree(gate));
}

// The program may destroy a stream that stands still: its copies are made all the same, and those of
// the next stream, which may get its handle, too.
static void destroyed_while_they_stand_still(size_t bytes, int count, int streams) {
    cudaStream_t moves;
    CHECK(cudaStreamCreateWithFlags(&moves, cudaStreamNonBlocking));
    unsigned *gate;
    char *device, *host, *back;
    CHECK(cudaMalloc(&gate, 4));
    CHECK(cudaMemset(gate, 0, 4));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMalloc(&device, bytes * count));
    host = host_memory(bytes * count);
    back = host_memory(bytes * count);
    for (int turn = 1; turn <= streams; turn++) {
        unsigned *words = (unsigned *)host;
        for (size_t word = 0; word < bytes * count / 4; word++) words[word] = (turn << 24) + (unsigned)word;
        cudaStream_t still;
        CHECK(cudaStreamCreateWithFlags(&still, cudaStreamNonBlocking));
        CHECK_DRIVER(DRIVER(cuStreamWaitValue32)((CUstream)still, (CUdeviceptr)gate, turn, CU_STREAM_WAIT_VALUE_EQ));
        for (int i = 0; i < count; i++) {
            CHECK(cudaMemcpyAsync(device + i * bytes, host + i * bytes, bytes, cudaMemcpyHostToDevice, still));
            CHECK(cudaMemcpyAsync(back + i * bytes, device + i * bytes, bytes, cudaMemcpyDeviceToHost, still));
        }
        CHECK(cudaStreamDestroy(still));
        CHECK_DRIVER(DRIVER(cuStreamWriteValue32)((CUstream)moves, (CUdeviceptr)gate, turn, 0));
        CHECK(cudaDeviceSynchronize());
        expect(back, bytes * count, turn << 24, "copies of a stream that was destroyed");
    }
    free_host(host, bytes * count);
    free_host(back, bytes * count);
    CHECK(cudaFree(device));
    CHECK(cudaFree(gate));
    CHECK(cudaStreamDestroy(moves));
}

int main(int argc, char **argv) {
    // With arguments, only the parts of these numbers.
    std::vector<bool> wanted(10, argc == 1);
    for (int i = 1; i < argc; i++) wanted.at(atoi(argv[i])) = true;
    // The driver may load the kernel only while nothing runs, which no part may wait for.
    fill<<<1, 1>>>(nullptr, 0, 0);
    CHECK(cudaDeviceSynchronize());
    for (bool kind : {false, true}) {
        registered = kind;
        if (wanted[1]) into_one_buffer(8 * MIB, 12);
        if (wanted[2]) into_one_buffer(MIB / 2, 40);
        if (wanted[3]) by_two_streams(4 * MIB, 12);
        if (wanted[4]) both_ways(8 * MIB, 16);
        if (wanted[5]) behind_a_stream_that_stands_still(32 * MIB, 8);
        if (wanted[6]) behind_a_stream_that_stands_still(MIB, 200);
        if (wanted[7]) destroyed_while_they_stand_still(MIB, 100, 3);
        for (cudaMemcpyKind first : {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost}) {
            if (wanted[8]) several_that_stood_still(16 * MIB, 12, 4, first);
            if (wanted[9]) several_that_stood_still(2 * MIB, 48, 6, first);
        }
    }
    printf("queued copies are as they should be\n");
    return 0;
}
