// System calls read and write memory that kernels have used, in turns with kernels. Forked children
// find in page-locked memory what the program has there.
//
//   system_calls [children|closed]
//
// children: also that what a child writes is seen as natively: in allocated memory by the parent, in
// registered memory not.
// closed: of managed memory, and of more page-locked memory than Outboard keeps accessible. A handler
// for SIGSEGV that is set once they are in use is not called for them.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <utility>

#include "check.h"

const int MOST = 6 << 20;
int BYTES = 1 << 20;

__global__ void add(unsigned char* bytes, int count, int what) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) bytes[i] += what;
}

struct Memory {
    unsigned char* bytes;
    int file;
    unsigned char* other;

    void kernel(int what) const {
        add<<<8, 128>>>(bytes, BYTES, what);
        CHECK(cudaDeviceSynchronize());
    }
    void fill(unsigned char* to, int seed) const {
        for (int i = 0; i < BYTES; i++) to[i] = static_cast<unsigned char>(i * 7 + seed);
    }
    bool holds(const unsigned char* from, int seed) const {
        for (int i = 0; i < BYTES; i++) {
            if (from[i] != static_cast<unsigned char>(i * 7 + seed)) return false;
        }
        return true;
    }
};

void* drain(void* argument) {
    auto* all = static_cast<std::pair<int, unsigned char*>*>(argument);
    for (ssize_t at = 0, got; at < BYTES; at += got) {
        got = read(all->first, all->second + at, BYTES - at);
        EXPECT(got > 0);
    }
    return nullptr;
}

void files(const Memory& m) {
    m.fill(m.bytes, 1);
    m.kernel(1);
    EXPECT(pwrite(m.file, m.bytes, BYTES, 0) == BYTES);
    EXPECT(pread(m.file, m.other, BYTES, 0) == BYTES && m.holds(m.other, 2));
    m.fill(m.other, 5);
    EXPECT(pwrite(m.file, m.other, BYTES, 0) == BYTES);
    m.kernel(1);
    EXPECT(pread(m.file, m.bytes, BYTES, 0) == BYTES && m.holds(m.bytes, 5));
    m.kernel(3);
    EXPECT(m.holds(m.bytes, 8));
    // In the middle of pages.
    iovec parts[2] = {{m.bytes + 100, 5000}, {m.bytes + BYTES - 33, 33}};
    m.kernel(1);
    EXPECT(preadv(m.file, parts, 2, 0) == 5033 && memcmp(m.bytes + 100, m.other, 5000) == 0);
    EXPECT(pwritev(m.file, parts, 2, 0) == 5033);
    m.kernel(1);
    FILE* stream = fdopen(dup(m.file), "r");
    rewind(stream);
    EXPECT(fread(m.bytes, 1, BYTES, stream) == BYTES && m.holds(m.bytes, 5));
    fclose(stream);
}

void sockets(const Memory& m) {
    int ends[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    m.fill(m.bytes, 9);
    m.kernel(1);
    std::pair<int, unsigned char*> to = {ends[1], m.other};
    pthread_t thread;
    EXPECT(pthread_create(&thread, nullptr, drain, &to) == 0);
    for (ssize_t at = 0, put; at < BYTES; at += put) {
        put = send(ends[0], m.bytes + at, BYTES - at, 0);
        EXPECT(put > 0);
    }
    pthread_join(thread, nullptr);
    EXPECT(m.holds(m.other, 10));
    to = {ends[1], m.bytes};
    m.kernel(4);
    EXPECT(pthread_create(&thread, nullptr, drain, &to) == 0);
    for (ssize_t at = 0, put; at < BYTES; at += put) {
        put = write(ends[0], m.other + at, BYTES - at);
        EXPECT(put > 0);
    }
    pthread_join(thread, nullptr);
    EXPECT(m.holds(m.bytes, 10));
    m.kernel(1);
    EXPECT(m.holds(m.bytes, 11));
    close(ends[0]);
    close(ends[1]);
}

void others(const Memory& m) {
    m.fill(m.bytes, 20);
    m.kernel(1);
    iovec local = {m.other, static_cast<size_t>(BYTES)}, remote = {m.bytes, static_cast<size_t>(BYTES)};
    ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    // Containers may forbid it.
    EXPECT((got == BYTES && m.holds(m.other, 21)) || (got < 0 && (errno == EPERM || errno == ENOSYS)));
    m.kernel(1);
    EXPECT(syscall(SYS_getrandom, m.bytes + 4096, 256, 0) == 256);
}

void reading_children(const Memory& m) {
    m.fill(m.bytes, 30);
    m.kernel(1);
    pid_t child = fork();
    if (child == 0) _exit(m.holds(m.bytes, 31) ? 0 : 1);
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void children(const Memory& m, bool is_shared) {
    m.fill(m.bytes, 40);
    m.kernel(1);
    pid_t child = fork();
    if (child == 0) {
        m.bytes[12345]++;
        _exit(0);
    }
    EXPECT(waitpid(child, nullptr, 0) == child);
    EXPECT(m.holds(m.bytes, 41) != is_shared);
    m.kernel(1);
    EXPECT(m.bytes[12345] == static_cast<unsigned char>(12345 * 7 + 42 + (is_shared ? 1 : 0)));
}

void handler(int) {
    static const char said[] = "the program's handler was called\n";
    write(STDERR_FILENO, said, sizeof said - 1);
    _exit(1);
}

void with_a_handler(const Memory& m) {
    struct sigaction action = {}, before;
    action.sa_handler = handler;
    EXPECT(sigaction(SIGSEGV, &action, &before) == 0);
    m.fill(m.bytes, 50);
    m.kernel(1);
    EXPECT(m.holds(m.bytes, 51));
    EXPECT(sigaction(SIGSEGV, &before, nullptr) == 0);
}

int main(int argc, char** argv) {
    const bool is_closed = argc > 1 && strcmp(argv[1], "closed") == 0;
    const bool has_children = argc > 1 && !is_closed;
    Memory memory = {nullptr, memfd_create("system_calls", 0), static_cast<unsigned char*>(malloc(MOST))};
    EXPECT(memory.file >= 0);
    for (const char* kind : {"managed", "allocated", "registered", "registered, not at a page"}) {
        const bool is_managed = strcmp(kind, "managed") == 0, is_allocated = strcmp(kind, "allocated") == 0;
        if (is_managed && !is_closed) continue;
        BYTES = is_closed && !is_managed ? MOST : 1 << 20;
        unsigned char* whole = nullptr;
        if (is_managed) {
            CHECK(cudaMallocManaged(&memory.bytes, BYTES));
        } else if (is_allocated) {
            CHECK(cudaHostAlloc(&memory.bytes, BYTES, cudaHostAllocMapped));
        } else {
            whole = static_cast<unsigned char*>(aligned_alloc(4096, BYTES + 4096));
            memory.bytes = whole + (strcmp(kind, "registered") == 0 ? 0 : 24);
            CHECK(cudaHostRegister(memory.bytes, BYTES, cudaHostRegisterMapped));
        }
        files(memory);
        sockets(memory);
        others(memory);
        if (is_closed) with_a_handler(memory);
        else reading_children(memory);
        if (has_children) children(memory, is_allocated);
        printf("%s: right\n", kind);
        if (is_managed) CHECK(cudaFree(memory.bytes));
        else if (is_allocated) CHECK(cudaFreeHost(memory.bytes));
        else CHECK(cudaHostUnregister(memory.bytes));
        free(whole);
    }
    return outcome();
}
