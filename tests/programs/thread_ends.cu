// Objects of a thread free their device memory when the thread ends, which is after all that a
// driver library may have noted for the thread: they were there before its first call.
#include <thread>

#include "check.h"

struct Buffer {
    int* memory = nullptr;
    bool is_of_main = false;

    void fill(int value) {
        CHECK(cudaMalloc(&memory, sizeof(int)));
        CHECK(cudaMemcpy(memory, &value, sizeof(int), cudaMemcpyHostToDevice));
    }

    ~Buffer() {
        int value = 0;
        CHECK(cudaMemcpy(&value, memory, sizeof(int), cudaMemcpyDeviceToHost));
        EXPECT(value == (is_of_main ? 1 : 2));
        CHECK(cudaFree(memory));
        printf("the memory of %s is freed\n", is_of_main ? "the main thread" : "another thread");
    }
};

static thread_local Buffer buffer;

int main() {
    buffer.is_of_main = true;
    std::thread([] {
        buffer.is_of_main = false;
        buffer.fill(2);
    }).join();
    buffer.fill(1);
    return 0;
}
