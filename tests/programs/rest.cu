// Waits for a kernel and for a function of its own, and then does nothing for a while. For a test
// that looks at the processor time meanwhile.
//
//   rest [MILLISECONDS]    how long each takes, default 10
#include "check.h"

#include <chrono>
#include <thread>

static unsigned milliseconds;

__global__ void work(unsigned long long nanoseconds, unsigned* counter) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
    *counter += 1;
}

static void rest(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

static void say(const char* what) {
    printf("%s\n", what);
    fflush(stdout);
}

int main(int argc, char** argv) {
    milliseconds = argc > 1 ? static_cast<unsigned>(atoi(argv[1])) : 10;
    DeviceArray<unsigned> counter(1);
    counter.zero();
    CHECK(cudaDeviceSynchronize());
    say("kernel");
    work<<<1, 1>>>(milliseconds * 1000000ull, counter.get());
    CHECK(cudaDeviceSynchronize());
    say("function");
    CHECK(cudaLaunchHostFunc(nullptr, rest, nullptr));
    CHECK(cudaDeviceSynchronize());
    say("nothing");
    rest(nullptr);
    EXPECT(counter.download()[0] == 1);
    say("done");
    return 0;
}
