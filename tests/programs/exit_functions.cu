// The process may end with host functions queued, and fork while they run.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "check.h"

// Never destroyed: functions may still run while the process exits.
static std::vector<int>& done = *new std::vector<int>;

static void slow(void* data) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    done.push_back(*static_cast<int*>(data));
}

// Runs after main, when most of the program is gone: whatever the calls give, they return.
struct AtExit {
    ~AtExit() {
        (void)cudaDeviceSynchronize();
        (void)cudaGetLastError();
    }
};
static AtExit at_exit;

int main() {
    int* number = new int(7);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (int i = 0; i < 5; i++) CHECK(cudaLaunchHostFunc(stream, slow, number));
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        // Nothing of CUDA works here, and nothing waits for threads that are not there.
        _exit(cudaStreamSynchronize(stream) == cudaSuccess ? 1 : 0);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(done.size() == 5);
    for (int i = 0; i < 200; i++) CHECK(cudaLaunchHostFunc(stream, slow, number));
    printf("leaving with functions queued\n");
    fflush(stdout);
    return 0;
}
