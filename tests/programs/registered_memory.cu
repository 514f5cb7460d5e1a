// Memory that the program has mapped itself and registers: a file's, its own, parts of either;
// copies, kernels, a child that is forked, threads that write beside, and memory that is registered
// again.
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

static const size_t PAGE = 4096;

__global__ void add(unsigned char *data, size_t count, unsigned char value) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) data[i] += value;
}

static void fill(unsigned char *memory, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) memory[i] = static_cast<unsigned char>(i * 7 + i / 251 + seed);
}

// Whether so many bytes are as `fill` leaves them, from `from` on.
static bool filled(const unsigned char *memory, size_t bytes, unsigned seed, size_t from = 0) {
    for (size_t i = from; i < from + bytes; i++)
        if (memory[i] != static_cast<unsigned char>(i * 7 + i / 251 + seed)) return false;
    return true;
}

enum Kind { MEMFD, CLOSED_MEMFD, NAMED, UNLINKED, SHARED, PRIVATE_FILE, OWN, KINDS };
static const char *NAMES[] = {"memfd",     "closed memfd",   "named file", "file without a name",
                              "shared",    "private of a file", "own"};

// Where in its file memory begins.
static off_t beginning(Kind kind) { return kind == UNLINKED ? 0 : PAGE; }

// Maps memory; `file` is a descriptor of it, if one is left.
static unsigned char *map(Kind kind, size_t bytes, int *file) {
    *file = -1;
    if (kind == OWN || kind == SHARED) {
        int flags = MAP_ANONYMOUS | (kind == OWN ? MAP_PRIVATE : MAP_SHARED);
        void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        EXPECT(memory != MAP_FAILED);
        return static_cast<unsigned char *>(memory);
    }
    std::string name = "/outboard-test-" + std::to_string(getpid());
    bool named = kind == NAMED || kind == UNLINKED;
    int opened = named ? shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600) : memfd_create("test", MFD_CLOEXEC);
    EXPECT(opened >= 0);
    // Not from its beginning, but for one.
    off_t begin = beginning(kind);
    EXPECT(ftruncate(opened, static_cast<off_t>(bytes) + begin) == 0);
    int flags = kind == PRIVATE_FILE ? MAP_PRIVATE : MAP_SHARED;
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, opened, begin);
    EXPECT(memory != MAP_FAILED);
    if (kind == UNLINKED) EXPECT(shm_unlink(name.c_str()) == 0);
    if (kind == CLOSED_MEMFD || kind == NAMED) {
        EXPECT(close(opened) == 0);
    } else {
        *file = opened;
    }
    return static_cast<unsigned char *>(memory);
}

static void forget(Kind kind, int file) {
    if (file >= 0) EXPECT(close(file) == 0);
    if (kind == NAMED) EXPECT(shm_unlink(("/outboard-test-" + std::to_string(getpid())).c_str()) == 0);
}

static void unmap(Kind kind, unsigned char *memory, size_t bytes, int file) {
    EXPECT(munmap(memory, bytes) == 0);
    forget(kind, file);
}

static cudaStream_t stream;
static unsigned char *device;

// To the device and back, asynchronously, as the program goes on.
static void there_and_back(unsigned char *memory, size_t bytes, unsigned seed) {
    fill(memory, bytes, seed);
    CHECK(cudaMemcpyAsync(device, memory, bytes, cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
    memset(memory, 0xee, bytes);
    add<<<32, 128, 0, stream>>>(device, bytes, 3);
    CHECK(cudaMemcpyAsync(memory, device, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(filled(memory, bytes, seed + 3));
}

static void copies(Kind kind) {
    const size_t bytes = (3 << 20) + 5 * PAGE;
    int file;
    unsigned char *memory = map(kind, bytes, &file);
    // All of it, some that begins and ends within pages, and all again.
    const size_t first[] = {0, PAGE + 100, 0}, length[] = {bytes, (2 << 20) + 11, bytes};
    for (int round = 0; round < 3; round++) {
        unsigned char *part = memory + first[round];
        CHECK(cudaHostRegister(part, length[round], cudaHostRegisterDefault));
        for (size_t size : {length[round], size_t(100), size_t(70000), size_t(1) << 20}) there_and_back(part, size, round);
        // Inside of it, and what was queued at once.
        fill(part, length[round], 50);
        for (size_t at = 0; at + 100000 <= length[round]; at += 100000)
            CHECK(cudaMemcpyAsync(device + at, part + at, 100000, cudaMemcpyHostToDevice, stream));
        CHECK(cudaStreamSynchronize(stream));
        memset(part, 0, length[round]);
        CHECK(cudaMemcpy(part, device, length[round] / 100000 * 100000, cudaMemcpyDeviceToHost));
        EXPECT(filled(part, length[round] / 100000 * 100000, 50));
        if (file >= 0 && kind != PRIVATE_FILE) {
            // Who writes to the file writes to the memory, and reads what the device has written.
            there_and_back(part, length[round], 90);
            unsigned char byte = 0;
            off_t at = beginning(kind) + static_cast<off_t>(first[round] + 1000);
            EXPECT(pread(file, &byte, 1, at) == 1 && byte == part[1000]);
            byte = 77;
            EXPECT(pwrite(file, &byte, 1, at) == 1);
            CHECK(cudaMemcpyAsync(device, part, 2000, cudaMemcpyHostToDevice, stream));
            unsigned char got[2000];
            CHECK(cudaMemcpy(got, device, 2000, cudaMemcpyDeviceToHost));
            EXPECT(got[1000] == 77 && got[999] == part[999]);
        }
        CHECK(cudaHostUnregister(part));
        EXPECT(cudaHostUnregister(part) == cudaErrorHostMemoryNotRegistered);
        cudaGetLastError();
        // What is not registered any more is memory like any other, with what it held.
        fill(part, length[round], 20);
        CHECK(cudaMemcpyAsync(device, part, length[round], cudaMemcpyHostToDevice, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(filled(part, length[round], 20));
    }
    // Other memory comes to lie at these addresses.
    void *other = mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    EXPECT(other == memory && memory[1000] == 0);
    forget(kind, file);
    CHECK(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
    there_and_back(memory, bytes, 9);
    CHECK(cudaHostUnregister(memory));
    EXPECT(munmap(other, bytes) == 0);
    printf("%s, copies: right\n", NAMES[kind]);
}

// Two parts that share a page are registered, and kernels use both.
static void neighbours(Kind kind) {
    const size_t bytes = 8 * PAGE, middle = 3 * PAGE + 640;
    int file;
    unsigned char *memory = map(kind, bytes, &file), *pointers[2];
    const size_t first[] = {64, middle}, length[] = {middle - 64, bytes - middle - 64};
    fill(memory, bytes, 1);
    for (int part : {0, 1}) {
        CHECK(cudaHostRegister(memory + first[part], length[part], cudaHostRegisterMapped));
        CHECK(cudaHostGetDevicePointer(&pointers[part], memory + first[part], 0));
    }
    for (int round = 0; round < 3; round++) {
        for (int part : {0, 1}) add<<<8, 64, 0, stream>>>(pointers[part], length[part], 1);
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(filled(memory, bytes - 128, 2 + round, 64));
        EXPECT(filled(memory, 64, 1) && filled(memory, 64, 1, bytes - 64));
    }
    for (int part : {0, 1}) there_and_back(memory + first[part], length[part], 5);
    CHECK(cudaHostUnregister(memory + first[0]));
    there_and_back(memory + first[1], length[1], 6);
    CHECK(cudaHostUnregister(memory + first[1]));
    EXPECT(filled(memory + first[1], length[1], 9) && filled(memory + first[0], length[0], 8));
    unmap(kind, memory, bytes, file);
    printf("%s, neighbours: right\n", NAMES[kind]);
}

// A child has a copy of the program's own memory, and shares a file's, whichever of both writes
// first.
static void forked(Kind kind) {
    const size_t bytes = 1 << 20;
    int file;
    unsigned char *memory = map(kind, bytes, &file);
    bool shares = kind != OWN && kind != PRIVATE_FILE;
    CHECK(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
    there_and_back(memory, bytes, 1);
    int ready[2], go[2];
    EXPECT(pipe(ready) == 0 && pipe(go) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char byte = 0;
        memory[0] = 0xc1;
        if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) _exit(2);
        // The parent's later bytes are seen where memory is shared, and only there.
        _exit(memory[PAGE] == (shares ? 0xab : static_cast<unsigned char>(PAGE * 7 + PAGE / 251 + 4)) ? 0 : 1);
    }
    char byte = 0;
    EXPECT(read(ready[0], &byte, 1) == 1);
    EXPECT(memory[0] == (shares ? 0xc1 : 4));
    memory[PAGE] = 0xab, memory[PAGE + 1] = 0xac;
    CHECK(cudaMemcpyAsync(device, memory, bytes, cudaMemcpyHostToDevice, stream));
    std::vector<unsigned char> got(bytes);
    CHECK(cudaMemcpyAsync(got.data(), device, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(memcmp(got.data(), memory, bytes) == 0);
    EXPECT(write(go[1], &byte, 1) == 1);
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    there_and_back(memory, bytes, 8);
    CHECK(cudaHostUnregister(memory));
    unmap(kind, memory, bytes, file);
    for (int end : {ready[0], ready[1], go[0], go[1]}) close(end);
    printf("%s, a child: right\n", NAMES[kind]);
}

// Copies fill the even thousands of bytes; threads write the odd ones meanwhile, and nothing of
// theirs is lost.
static void threads(Kind kind) {
    const size_t piece = 1000, pieces = 256, bytes = piece * pieces;
    int file;
    unsigned char *memory = map(kind, bytes, &file);
    memset(memory, 0, bytes);
    CHECK(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> writers;
    for (size_t which : {1, 3})
        writers.emplace_back([=, &over, &wrong] {
            for (unsigned char turn = 1; !over; turn++)
                for (size_t at = which; at < pieces; at += 4) {
                    volatile unsigned char *mine = memory + at * piece;
                    for (size_t i = 0; i < piece; i += 37) mine[i] = turn;
                    for (size_t i = 0; i < piece; i += 37) wrong += mine[i] != turn;
                }
        });
    for (unsigned round = 0; round < 6; round++) {
        for (size_t at = 0; at < pieces; at += 2) {
            CHECK(cudaMemsetAsync(device + at * piece, static_cast<int>(round + at), piece, stream));
            CHECK(cudaMemcpyAsync(memory + at * piece, device + at * piece, piece, cudaMemcpyDeviceToHost, stream));
        }
        CHECK(cudaStreamSynchronize(stream));
        for (size_t at = 0; at < pieces; at += 2)
            for (size_t i = 0; i < piece; i += 99) EXPECT(memory[at * piece + i] == static_cast<unsigned char>(round + at));
    }
    over = true;
    for (std::thread &writer : writers) writer.join();
    EXPECT(wrong == 0);
    CHECK(cudaHostUnregister(memory));
    unmap(kind, memory, bytes, file);
    printf("%s, threads: right\n", NAMES[kind]);
}

// The device forgets what is registered when its context ends.
static void after_a_reset(Kind kind) {
    const size_t bytes = 1 << 20;
    int file;
    unsigned char *memory = map(kind, bytes, &file);
    for (int round = 0; round < 2; round++) {
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaMalloc(&device, bytes));
        CHECK(cudaHostRegister(memory + round * 64, bytes - 64, cudaHostRegisterDefault));
        there_and_back(memory + round * 64, bytes - 64, round);
        CHECK(cudaDeviceReset());
        EXPECT(filled(memory + round * 64, bytes - 64, round + 3));
    }
    unmap(kind, memory, bytes, file);
    printf("%s, after a reset: right\n", NAMES[kind]);
}

// Nothing but copies of a mebibyte, asynchronously, 16 to the device and 16 from it.
static void only_copies(Kind kind) {
    const size_t bytes = 1 << 20;
    int file;
    unsigned char *memory = map(kind, bytes, &file);
    CHECK(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
    for (int i = 0; i < 16; i++) {
        CHECK(cudaMemcpyAsync(device, memory, bytes, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemcpyAsync(memory, device, bytes, cudaMemcpyDeviceToHost, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaHostUnregister(memory));
    unmap(kind, memory, bytes, file);
}

// With the number of a kind, only copies of that kind.
int main(int argc, char **argv) {
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&device, 8 << 20));
    if (argc > 1) {
        only_copies(static_cast<Kind>(atoi(argv[1])));
        return 0;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        copies(static_cast<Kind>(kind));
        neighbours(static_cast<Kind>(kind));
        forked(static_cast<Kind>(kind));
        threads(static_cast<Kind>(kind));
    }
    for (int kind = 0; kind < KINDS; kind++) after_a_reset(static_cast<Kind>(kind));
    return 0;
}
