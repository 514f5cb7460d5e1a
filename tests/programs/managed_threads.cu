// Managed memory of several host threads, each with a stream of its own; faults of the program's
// own beside it.
#include "check.h"

#include <csetjmp>
#include <csignal>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

__global__ void add(int *data, size_t count, int value) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) data[i] += value;
}

static void work(int number, uint64_t *result) {
    const size_t count = 100000;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int *data;
    CHECK(cudaMallocManaged(&data, count * sizeof(int), cudaMemAttachHost));
    CHECK(cudaStreamAttachMemAsync(stream, data, 0, cudaMemAttachSingle));
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < count; i++) data[i] = static_cast<int>(i) + number;
    for (int round = 0; round < 20; round++) {
        add<<<16, 256, 0, stream>>>(data, count, 1);
        CHECK(cudaStreamSynchronize(stream));
        for (size_t i = number; i < count; i += 997) {
            EXPECT(data[i] == static_cast<int>(i) + number + 2 * round + 1);
        }
        for (size_t i = 0; i < count; i++) data[i]++;
    }
    std::vector<int> values(data, data + count);
    *result = checksum(values);
    CHECK(cudaFree(data));
    CHECK(cudaStreamDestroy(stream));
}

static volatile sig_atomic_t own_faults = 0;
static char *guard;

static void open_guard(int, siginfo_t *info, void *) {
    if (info->si_addr != guard) _exit(99);
    own_faults++;
    mprotect(guard, 4096, PROT_READ | PROT_WRITE);
}

static sigjmp_buf escape;

static void jump(int) { siglongjmp(escape, 1); }

// The program's own handler gets the program's own faults, whether it was there before managed
// memory was or came later.
static void faults(int *data, size_t count) {
    guard = static_cast<char *>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    add<<<16, 256>>>(data, count, 1);
    CHECK(cudaDeviceSynchronize());
    *guard = 1;
    EXPECT(own_faults == 1 && data[10] == 1);
    struct sigaction action = {};
    action.sa_handler = jump;
    sigaction(SIGSEGV, &action, nullptr);
    add<<<16, 256>>>(data, count, 1);
    CHECK(cudaDeviceSynchronize());
    EXPECT(data[20] == 2);
    mprotect(guard, 4096, PROT_NONE);
    if (sigsetjmp(escape, 1) == 0) {
        *guard = 2;
        EXPECT(!"reached");
    }
    add<<<16, 256>>>(data, count, 1);
    CHECK(cudaDeviceSynchronize());
    EXPECT(data[count - 1] == 3);
    printf("faults: ok\n");
}

int main() {
    struct sigaction action = {};
    action.sa_sigaction = open_guard;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    uint64_t results[4];
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) threads.emplace_back(work, i, &results[i]);
    for (auto &thread : threads) thread.join();
    for (int i = 0; i < 4; i++) printf("thread %d: %016llx\n", i, static_cast<unsigned long long>(results[i]));
    const size_t count = 10000;
    int *data;
    CHECK(cudaMallocManaged(&data, count * sizeof(int)));
    for (size_t i = 0; i < count; i++) data[i] = 0;
    faults(data, count);
    // A child leaves its parent's memory alone.
    data[5] = 50;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(7);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    add<<<16, 256>>>(data, count, 1);
    CHECK(cudaDeviceSynchronize());
    EXPECT(data[5] == 51 && data[6] == 4);
    CHECK(cudaFree(data));
    printf("child: ok\n");
    return outcome();
}
