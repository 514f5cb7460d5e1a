// After fork the child may not use CUDA: it gets an error, neither a hang nor a crash, and may
// start another program. The parent goes on as if nothing had happened.
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

__global__ void add_one(int* value) { *value += 1; }

int main(int argc, char** argv) {
    if (argc > 1) {
        // Started afresh by the child: a process of its own, and all works.
        DeviceArray<int> value(1);
        value.zero();
        add_one<<<1, 1>>>(value.get());
        EXPECT(value.download()[0] == 1);
        printf("a program started by the child: right\n");
        return 0;
    }
    DeviceArray<int> value(1);
    value.zero();
    for (int i = 0; i < 100; i++) add_one<<<1, 1>>>(value.get());
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int copied = 0;
        void* pointer = nullptr;
        cudaError_t malloc_result = cudaMalloc(&pointer, 100);
        cudaError_t copy_result = cudaMemcpy(&copied, value.get(), sizeof(copied), cudaMemcpyDeviceToHost);
        add_one<<<1, 1>>>(value.get());
        cudaError_t launch_result = cudaGetLastError();
        bool refused = malloc_result != cudaSuccess && copy_result != cudaSuccess && launch_result != cudaSuccess;
        printf("the child's calls: %s\n", refused ? "refused" : "NOT refused");
        fflush(stdout);
        if (!refused) _exit(1);
        execl("/proc/self/exe", argv[0], "again", static_cast<char*>(nullptr));
        _exit(2);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int i = 0; i < 100; i++) add_one<<<1, 1>>>(value.get());
    int total = value.download()[0];
    printf("the parent counted %d\n", total);
    EXPECT(total == 200);
    return 0;
}
