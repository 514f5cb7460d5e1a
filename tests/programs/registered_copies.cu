// Asynchronous copies from and to memory of the program's own that is registered: their order with
// kernels, functions of the program and each other, boxes, graphs, a child that is forked in the
// middle, threads that write beside, and memory that is given up while it is copied.
#include "check.h"
#include "driver.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

static const size_t MIB = 1 << 20;
// Of one chunk and of many, in whole pages and not.
static const size_t SIZES[] = {4, 65536, 65540, 300004, 5 * MIB + 12, 24 * MIB};

__global__ void add(unsigned *data, size_t count, unsigned value) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x)
        data[i] += value;
}

// Memory that is registered from within a page on.
struct Registered {
    char *map;
    size_t bytes;
    unsigned *words;

    explicit Registered(size_t bytes) : bytes(bytes + 8192) {
        void *memory = mmap(nullptr, this->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(memory != MAP_FAILED);
        map = (char *)memory;
        words = (unsigned *)(map + 516);
        CHECK(cudaHostRegister(words, bytes, cudaHostRegisterDefault));
    }

    ~Registered() {
        CHECK(cudaHostUnregister(words));
        EXPECT(munmap(map, bytes) == 0);
    }
};

static void fill(unsigned *words, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes / 4; i++) words[i] = seed + (unsigned)i * 3;
}

static bool filled(const unsigned *words, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes / 4; i++)
        if (words[i] != seed + (unsigned)i * 3) return false;
    return true;
}

static cudaStream_t stream, other;
static unsigned *device;
static unsigned *gate;

static void shut(cudaStream_t which) {
    CHECK(cudaMemset(gate, 0, 4));
    CHECK(cudaDeviceSynchronize());
    CHECK_DRIVER(DRIVER(cuStreamWaitValue32)((CUstream)which, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static void open_it(cudaStream_t by) { CHECK_DRIVER(DRIVER(cuStreamWriteValue32)((CUstream)by, (CUdeviceptr)gate, 1, 0)); }

// Kernels before, between and behind; down, up again from the same memory, and down once more.
static void order() {
    for (size_t bytes : SIZES) {
        Registered first(bytes), second(bytes);
        for (unsigned round = 0; round < 3; round++) {
            fill(first.words, bytes, round);
            CHECK(cudaMemcpyAsync(device, first.words, bytes, cudaMemcpyHostToDevice, stream));
            add<<<32, 128, 0, stream>>>(device, bytes / 4, 1);
            CHECK(cudaMemcpyAsync(second.words, device, bytes, cudaMemcpyDeviceToHost, stream));
            add<<<32, 128, 0, stream>>>(device, bytes / 4, 1000);
            CHECK(cudaMemcpyAsync(device, second.words, bytes, cudaMemcpyHostToDevice, stream));
            add<<<32, 128, 0, stream>>>(device, bytes / 4, 1);
            CHECK(cudaMemcpyAsync(second.words, device, bytes, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaMemsetAsync(device, 0xee, bytes, stream));
            CHECK(cudaStreamSynchronize(stream));
            EXPECT(filled(first.words, bytes, round) && filled(second.words, bytes, round + 2));
        }
    }
    printf("order: right\n");
}

// Two streams over one buffer, in the order that events make; each kind of wait shows the bytes.
static void streams_and_events() {
    cudaEvent_t down, up;
    CHECK(cudaEventCreateWithFlags(&down, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&up, cudaEventDisableTiming));
    for (size_t bytes : SIZES) {
        Registered memory(bytes);
        CHECK(cudaMemsetAsync(device, 0, bytes, stream));
        for (unsigned round = 1; round <= 8; round++) {
            add<<<32, 128, 0, stream>>>(device, bytes / 4, 1);
            CHECK(cudaMemcpyAsync(memory.words, device, bytes, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaMemsetAsync(device, 0, bytes, stream));
            CHECK(cudaEventRecord(down, stream));
            CHECK(cudaStreamWaitEvent(other, down, 0));
            CHECK(cudaMemcpyAsync((char *)device + 32 * MIB, memory.words, bytes, cudaMemcpyHostToDevice, other));
            CHECK(cudaMemcpyAsync(device, (char *)device + 32 * MIB, bytes, cudaMemcpyDeviceToDevice, other));
            CHECK(cudaEventRecord(up, other));
            CHECK(cudaStreamWaitEvent(stream, up, 0));
            if (round % 4 == 1) {
                CHECK(cudaEventSynchronize(down));
            } else if (round % 4 == 2) {
                while (cudaEventQuery(down) == cudaErrorNotReady) std::this_thread::yield();
            } else if (round % 4 == 3) {
                while (cudaStreamQuery(stream) == cudaErrorNotReady) std::this_thread::yield();
            } else {
                CHECK(cudaDeviceSynchronize());
            }
            for (size_t i = 0; i < bytes / 4; i++) EXPECT(memory.words[i] == round);
        }
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaEventDestroy(down));
    CHECK(cudaEventDestroy(up));
    printf("streams and events: right\n");
}

struct Change {
    unsigned *words;
    size_t bytes;
};

// A function of the program sees what came down before it, and what it writes goes up behind it.
static void functions() {
    for (size_t bytes : SIZES) {
        Registered memory(bytes);
        Change change{memory.words, bytes};
        fill(memory.words, bytes, 1);
        CHECK(cudaMemcpyAsync(device, memory.words, bytes, cudaMemcpyHostToDevice, stream));
        add<<<32, 128, 0, stream>>>(device, bytes / 4, 5);
        CHECK(cudaMemcpyAsync(memory.words, device, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaLaunchHostFunc(
            stream,
            [](void *data) {
                Change *change = (Change *)data;
                bool right = filled(change->words, change->bytes, 6);
                fill(change->words, change->bytes, right ? 70 : 0);
            },
            &change));
        CHECK(cudaMemcpyAsync(device, memory.words, bytes, cudaMemcpyHostToDevice, stream));
        add<<<32, 128, 0, stream>>>(device, bytes / 4, 7);
        CHECK(cudaMemcpyAsync(memory.words, device, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(filled(memory.words, bytes, 77));
    }
    printf("functions: right\n");
}

// The calls return while their stream stands still, and a synchronous copy to the same memory comes
// after them.
static void calls_return() {
    for (size_t bytes : SIZES) {
        Registered up(bytes), down(bytes);
        fill(up.words, bytes, 4);
        memset(down.words, 0, bytes);
        shut(stream);
        CHECK(cudaMemcpyAsync(device, up.words, bytes, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemcpyAsync(down.words, device, bytes, cudaMemcpyDeviceToHost, stream));
        EXPECT(cudaStreamQuery(stream) == cudaErrorNotReady);
        EXPECT(down.words[0] == 0);
        open_it(other);
        // In the same stream, as it is the one that waits.
        add<<<32, 128, 0, stream>>>(device, bytes / 4, 1);
        CHECK_DRIVER(DRIVER(cuMemcpyDtoHAsync_v2)(down.words, (CUdeviceptr)device, bytes, (CUstream)stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(filled(down.words, bytes, 5));
    }
    cudaStream_t legacy = cudaStreamLegacy;
    for (size_t bytes : SIZES) {
        Registered memory(bytes);
        CHECK(cudaMemsetAsync(device, 1, bytes, legacy));
        CHECK(cudaMemcpyAsync(memory.words, device, bytes, cudaMemcpyDeviceToHost, legacy));
        CHECK(cudaMemsetAsync(device, 2, bytes, legacy));
        CHECK(cudaMemcpy(memory.words, device, bytes, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < bytes / 4; i++) EXPECT(memory.words[i] == 0x02020202);
        CHECK(cudaDeviceSynchronize());
        for (size_t i = 0; i < bytes / 4; i++) EXPECT(memory.words[i] == 0x02020202);
    }
    printf("calls that return: right\n");
}

// Rows and slices of pitched memory; what is between them stays as it is.
static void boxes() {
    const size_t width = 1200, pitch = 1536, rows = 96, slices = 40;
    Registered from(pitch * rows * slices), to(pitch * rows * slices);
    unsigned char *source = (unsigned char *)from.words, *target = (unsigned char *)to.words;
    for (size_t i = 0; i < pitch * rows * slices; i++) source[i] = (unsigned char)(i * 13 + i / 1000);
    memset(target, 0x55, pitch * rows * slices);
    for (size_t deep : {size_t(1), slices}) {
        cudaMemcpy3DParms parameters = {};
        parameters.extent = make_cudaExtent(width, rows, deep);
        parameters.srcPtr = make_cudaPitchedPtr(source, pitch, width, rows);
        parameters.dstPtr = make_cudaPitchedPtr(device, 2048, width, rows);
        parameters.kind = cudaMemcpyHostToDevice;
        CHECK(cudaMemcpy3DAsync(&parameters, stream));
        parameters.srcPtr = make_cudaPitchedPtr(device, 2048, width, rows);
        parameters.dstPtr = make_cudaPitchedPtr(target, pitch, width, rows);
        parameters.kind = cudaMemcpyDeviceToHost;
        CHECK(cudaMemcpy3DAsync(&parameters, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (size_t row = 0; row < rows * deep; row++) {
            EXPECT(memcmp(target + row * pitch, source + row * pitch, width) == 0);
            for (size_t i = width; i < pitch; i++) EXPECT(target[row * pitch + i] == 0x55);
        }
    }
    printf("boxes: right\n");
}

// Captured, and launched over and over.
static void graphs() {
    for (size_t bytes : SIZES) {
        Registered memory(bytes);
        cudaGraph_t graph;
        cudaGraphExec_t executable;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        CHECK(cudaMemcpyAsync(device, memory.words, bytes, cudaMemcpyHostToDevice, stream));
        add<<<32, 128, 0, stream>>>(device, bytes / 4, 9);
        CHECK(cudaMemcpyAsync(memory.words, device, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
        fill(memory.words, bytes, 0);
        // Beside copies that are not captured.
        for (int round = 0; round < 3; round++) {
            CHECK(cudaGraphLaunch(executable, stream));
            CHECK(cudaMemcpyAsync(device, memory.words, bytes, cudaMemcpyHostToDevice, stream));
            CHECK(cudaMemcpyAsync(memory.words, device, bytes, cudaMemcpyDeviceToHost, stream));
        }
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(filled(memory.words, bytes, 27));
        CHECK(cudaGraphExecDestroy(executable));
        CHECK(cudaGraphDestroy(graph));
    }
    printf("graphs: right\n");
}

// A child that is forked while copies are under way has its own copy of the memory, and the
// parent's copies go on.
static void forked() {
    const size_t bytes = 24 * MIB;
    Registered up(bytes), down(bytes);
    fill(up.words, bytes, 3);
    memset(down.words, 0, bytes);
    CHECK(cudaMemsetAsync(device, 0, bytes, stream));
    shut(stream);
    CHECK(cudaMemcpyAsync(device, up.words, bytes, cudaMemcpyHostToDevice, stream));
    add<<<32, 128, 0, stream>>>(device, bytes / 4, 1);
    CHECK(cudaMemcpyAsync(down.words, device, bytes, cudaMemcpyDeviceToHost, stream));
    int go[2];
    EXPECT(pipe(go) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        // Whatever the child writes is its own.
        for (size_t i = 0; i < bytes / 4; i += 512) up.words[i] = 1, down.words[i] = 1;
        if (read(go[0], &byte, 1) != 1) _exit(2);
        for (size_t i = 0; i < bytes / 4; i++) {
            if (down.words[i] != (i % 512 == 0 ? 1u : 0u)) {
                fprintf(stderr, "the child has %u in word %zu\n", down.words[i], i);
                _exit(1);
            }
        }
        _exit(0);
    }
    open_it(other);
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(filled(down.words, bytes, 4) && filled(up.words, bytes, 3));
    char byte = 0;
    EXPECT(write(go[1], &byte, 1) == 1);
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child);
    if (status != 0) printf("the child ended with status %#x\n", status);
    EXPECT(status == 0);
    close(go[0]), close(go[1]);
    printf("a child: right\n");
}

// Copies fill every other piece, which begins and ends within pages; threads write the others.
static void threads() {
    const size_t piece = 100004, pieces = 64;
    Registered memory(piece * pieces);
    char *bytes = (char *)memory.words;
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> writers;
    for (size_t which : {1, 3})
        writers.emplace_back([=, &over, &wrong] {
            for (char turn = 1; !over; turn++)
                for (size_t at = which; at < pieces; at += 4) {
                    volatile char *mine = bytes + at * piece;
                    for (size_t i = 0; i < piece; i += 33) mine[i] = turn;
                    for (size_t i = 0; i < piece; i += 33) wrong += mine[i] != turn;
                }
        });
    for (unsigned round = 0; round < 4; round++) {
        for (size_t at = 0; at < pieces; at += 2) {
            CHECK(cudaMemsetAsync((char *)device + at * piece, (int)(round + at), piece, stream));
            CHECK(cudaMemcpyAsync(bytes + at * piece, (char *)device + at * piece, piece, cudaMemcpyDeviceToHost, stream));
        }
        CHECK(cudaStreamSynchronize(stream));
        for (size_t at = 0; at < pieces; at += 2)
            for (size_t i = 0; i < piece; i += 3) EXPECT(bytes[at * piece + i] == (char)(round + at));
    }
    over = true;
    for (std::thread &writer : writers) writer.join();
    EXPECT(wrong == 0);
    printf("threads: right\n");
}

// Memory is given up while it is copied: what was queued is done all the same.
static void given_up() {
    for (size_t bytes : SIZES) {
        void *map = mmap(nullptr, 2 * bytes + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(map != MAP_FAILED);
        unsigned *up = (unsigned *)map, *down = up + bytes / 4;
        CHECK(cudaHostRegister(up, 2 * bytes, cudaHostRegisterDefault));
        fill(up, bytes, 8);
        shut(stream);
        CHECK(cudaMemcpyAsync(device, up, bytes, cudaMemcpyHostToDevice, stream));
        add<<<32, 128, 0, stream>>>(device, bytes / 4, 2);
        CHECK(cudaMemcpyAsync(down, device, bytes, cudaMemcpyDeviceToHost, stream));
        std::thread opener([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            open_it(other);
        });
        CHECK(cudaHostUnregister(up));
        opener.join();
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(filled(down, bytes, 10));
        EXPECT(munmap(map, 2 * bytes + 8192) == 0);
    }
    printf("memory that is given up: right\n");
}

int main() {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&device, 64 * MIB));
    CHECK(cudaMalloc(&gate, 4));
    order();
    streams_and_events();
    functions();
    calls_return();
    boxes();
    graphs();
    forked();
    threads();
    given_up();
    return 0;
}
