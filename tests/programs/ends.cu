// Ways in which a program ends: its own exit code, soon, whatever its threads and its streams do.
// The argument says how:
//   busy       exit() while threads are in calls
//   elsewhere  the same, by a thread that is not the first one
//   callback   exit() in a function that a stream calls
//   handlers   what calls give in handlers and destructors that were there before CUDA, and after it
//   abort, killed, system  after some calls, without any handler: by a signal, by the system call
//   becomes    after some calls, the process runs this program again, which ends by the system call
#include "check.h"
#include "driver.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

static constexpr int CODE = 7;

__global__ void count(int* out) {
    ++*out;
}

static int* memory;
static std::atomic<int> calls;

static void busy() {
    int* own;
    if (cudaMalloc(&own, 4096) != cudaSuccess) return;
    for (int i = 0;; i++) {
        count<<<1, 1>>>(own);
        if (i % 3 == 0) (void)cudaDeviceSynchronize();
        (void)cudaMemset(own, 0, 4096);
        if (cudaGetLastError() != cudaSuccess) return;
        ++calls;
    }
}

// What calls give: of the runtime, and of the driver below it.
static void say(const char* where) {
    unsigned flags;
    int active;
    int device;
    printf("%s: %d %d %d %d\n", where, cudaDeviceSynchronize(), cudaGetDevice(&device), DRIVER(cuCtxSynchronize)(), DRIVER(cuDevicePrimaryCtxGetState)(0, &flags, &active));
    fflush(stdout);
}

static void before() {
    say("before");
}

static void after() {
    say("after");
}

static bool says_destroyed;
struct Destroyed {
    ~Destroyed() {
        if (says_destroyed) say("destroyed");
    }
};
static Destroyed destroyed;

int main(int argc, char** argv) {
    EXPECT(argc == 2);
    const char* how = argv[1];
    bool handlers = strcmp(how, "handlers") == 0;
    if (handlers) {
        says_destroyed = true;
        atexit(before);
    }
    CHECK(cudaMalloc(&memory, 4096));
    CHECK(cudaMemset(memory, 0, 4096));
    for (int i = 0; i < 100; i++) count<<<1, 1>>>(memory);
    int counted = 0;
    CHECK(cudaMemcpy(&counted, memory, sizeof counted, cudaMemcpyDeviceToHost));
    EXPECT(counted == 100);
    if (handlers) {
        atexit(after);
        return CODE;
    }
    if (strcmp(how, "busy") == 0 || strcmp(how, "elsewhere") == 0) {
        for (int i = 0; i < 6; i++) std::thread(busy).detach();
        while (calls < 60) std::this_thread::yield();
        if (strcmp(how, "elsewhere") == 0) std::thread([] { exit(CODE); }).join();
        exit(CODE);
    }
    if (strcmp(how, "callback") == 0) {
        CHECK(cudaLaunchHostFunc(nullptr, [](void*) { exit(CODE); }, nullptr));
        for (;;) pause();
    }
    // So long a profile may be behind.
    usleep(600000);
    if (strcmp(how, "abort") == 0) {
        signal(SIGABRT, SIG_DFL);
        abort();
    }
    if (strcmp(how, "killed") == 0) kill(getpid(), SIGKILL);
    if (strcmp(how, "system") == 0) syscall(SYS_exit_group, CODE);
    if (strcmp(how, "becomes") == 0) execl("/proc/self/exe", "ends", "system", nullptr);
    return 1;
}
