// How long it takes to use managed memory in turns with kernels: for each size in KiB, medians of a
// launch, the wait for it, the first read after it, reading all, and writing all after another
// kernel.
//
//   page_times [KIB...]
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "check.h"

__global__ void change(int* words, size_t count) { words[0]++, words[count - 1]++; }

static double now() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double>& times) {
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
}

static void run(size_t bytes) {
    int* words = nullptr;
    CHECK(cudaMallocManaged(&words, bytes));
    const size_t count = bytes / sizeof(int);
    memset(words, 1, bytes);
    change<<<1, 1>>>(words, count);
    CHECK(cudaDeviceSynchronize());
    std::vector<double> launch, wait, first, all, write;
    volatile long sum = 0;
    for (int round = 0; round < (bytes > (16 << 20) ? 7 : 21); round++) {
        double begun = now();
        change<<<1, 1>>>(words, count);
        double launched = now();
        CHECK(cudaDeviceSynchronize());
        double waited = now();
        sum = sum + words[0];
        double read = now();
        for (size_t at = 0; at < count; at += 1024) sum = sum + words[at];
        launch.push_back(launched - begun), wait.push_back(waited - launched);
        first.push_back(read - waited), all.push_back(now() - read);
        change<<<1, 1>>>(words, count);
        CHECK(cudaDeviceSynchronize());
        begun = now();
        memset(words, round, bytes);
        write.push_back(now() - begun);
    }
    printf("%zu KiB: launch %.1f, wait %.1f, first read %.1f, read all %.1f, write all %.1f us\n", bytes >> 10,
           median(launch), median(wait), median(first), median(all), median(write));
    CHECK(cudaFree(words));
}

int main(int argc, char** argv) {
    for (int i = 1; i < argc; i++) run(strtoull(argv[i], nullptr, 10) << 10);
    return outcome();
}
