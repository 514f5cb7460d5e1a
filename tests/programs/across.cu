// How fast two devices work together, whatever machine each is on: copies from one to the other, one
// way and both ways at once, and events of one that the other waits for. They are the first and the
// last of the program's. Argument: MiB of each large copy (256).
//
// Prints a line for each measure: its name, and the median of ROUNDS in GB/s or µs. What was copied
// is checked. With "cut" as the argument it copies while somebody cuts the servers from each other.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "check.h"

static const int ROUNDS = 9;

__global__ void put(unsigned* out, size_t count, unsigned seed) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < count) out[i] = unsigned(i) * 7 + seed;
}

static double seconds(const std::function<void()>& work) {
    auto begun = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

static double median(const std::function<double()>& measure) {
    std::vector<double> values;
    for (int round = 0; round < ROUNDS; round++) values.push_back(measure());
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

struct Place {
    int device;
    size_t count;
    unsigned *from, *to;
    cudaStream_t stream;
    cudaEvent_t event;

    Place(int device, size_t bytes) : device(device), count(bytes / sizeof(unsigned)) {
        use();
        CHECK(cudaMalloc(&from, bytes));
        CHECK(cudaMalloc(&to, bytes));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    void use() const { CHECK(cudaSetDevice(device)); }
    void fill(unsigned seed) {
        use();
        put<<<blocks_for(count, 256), 256, 0, stream>>>(from, count, seed);
        CHECK(cudaGetLastError());
    }
    void small() {
        use();
        put<<<1, 32, 0, stream>>>(from, 32, 1);
        CHECK(cudaGetLastError());
    }
    void finish() {
        use();
        CHECK(cudaStreamSynchronize(stream));
    }
    void expect(size_t bytes, unsigned seed) {
        use();
        std::vector<unsigned> values(bytes / sizeof(unsigned));
        CHECK(cudaMemcpy(values.data(), to, bytes, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < values.size(); i++) EXPECT(values[i] == unsigned(i) * 7 + seed);
    }
};

static void send(const Place& from, Place& to, size_t bytes) {
    from.use();
    CHECK(cudaMemcpyPeerAsync(to.to, to.device, from.from, from.device, bytes, from.stream));
}

// Copies while somebody cuts what the bytes go over: what is under way then may fail, once.
static int cut(Place& one, Place& two, size_t bytes) {
    int failed = 0;
    for (unsigned seed = 1; seed <= 200; seed++) {
        one.fill(seed);
        send(one, two, bytes);
        one.use();
        cudaError_t error = cudaStreamSynchronize(one.stream);
        // The other device may be the one that is told.
        two.use();
        cudaError_t other = cudaStreamSynchronize(two.stream);
        if (error != cudaSuccess || other != cudaSuccess) {
            EXPECT(failed++ == 0);
            cudaGetLastError();
            continue;
        }
        two.expect(bytes, seed);
        if (seed == 1) puts("copied");
        fflush(stdout);
    }
    puts("across: done");
    return 0;
}

int main(int argc, char** argv) {
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (argc > 1 && !strcmp(argv[1], "cut")) {
        size_t bytes = 1 << 20;
        Place one(0, bytes), two(devices - 1, bytes);
        return cut(one, two, bytes);
    }
    size_t bytes = size_t(argc > 1 ? atoi(argv[1]) : 256) << 20;
    Place one(0, bytes), two(devices - 1, bytes);
    unsigned seed = 1;

    auto one_way = [&](Place& from, Place& to, size_t size) {
        from.fill(++seed);
        from.finish();
        double time = seconds([&] {
            send(from, to, size);
            from.finish();
        });
        to.expect(size, seed);
        return time;
    };
    for (size_t size : {bytes, bytes / 16, size_t(1) << 20, size_t(64) << 10, size_t(4) << 10}) {
        if (size < (64 << 10) && bytes < size) continue;
        double time = median([&] { return one_way(one, two, size); });
        double back = median([&] { return one_way(two, one, size); });
        printf("copy.%zuK %.2f GB/s %.1f us, back %.2f GB/s %.1f us\n", size >> 10, size / time / 1e9,
               time * 1e6, size / back / 1e9, back * 1e6);
    }
    double time = median([&] {
        one.fill(++seed);
        two.fill(seed);
        one.finish();
        two.finish();
        double time = seconds([&] {
            send(one, two, bytes);
            send(two, one, bytes);
            one.finish();
            two.finish();
        });
        one.expect(bytes, seed);
        two.expect(bytes, seed);
        return time;
    });
    printf("copy.both %.2f GB/s each\n", bytes / time / 1e9);
    double queued = median([&] {
        return seconds([&] {
            for (int i = 0; i < 16; i++) send(one, two, bytes / 16);
            one.finish();
        });
    });
    printf("copy.queued.16 %.2f GB/s\n", bytes / queued / 1e9);

    auto alone = [&](Place& place) {
        return seconds([&] {
            place.small();
            place.finish();
        });
    };
    double here = median([&] { return alone(one); }), there = median([&] { return alone(two); });
    double waited = median([&] {
        return seconds([&] {
            one.small();
            CHECK(cudaEventRecord(one.event, one.stream));
            two.use();
            CHECK(cudaStreamWaitEvent(two.stream, one.event, 0));
            two.small();
            two.finish();
        });
    });
    printf("event %.1f us (a kernel alone %.1f and %.1f)\n", waited * 1e6, here * 1e6, there * 1e6);
    // Many waits at once: each device waits for the other in turn.
    double each = median([&] {
        return seconds([&] {
            for (int i = 0; i < 50; i++) {
                one.small();
                CHECK(cudaEventRecord(one.event, one.stream));
                two.use();
                CHECK(cudaStreamWaitEvent(two.stream, one.event, 0));
                two.small();
                CHECK(cudaEventRecord(two.event, two.stream));
                one.use();
                CHECK(cudaStreamWaitEvent(one.stream, two.event, 0));
            }
            one.finish();
        }) / 100;
    });
    printf("event.chain %.1f us each\n", each * 1e6);
    printf("across: done\n");
    return 0;
}
