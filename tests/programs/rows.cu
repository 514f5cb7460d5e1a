// Long rows of launches, most of them the same again and again with other parameters: each must be
// made with its own parameters, in its order, whatever a driver makes of a row.
#include "check.h"

#include <thread>

__global__ void mix(unsigned* x, unsigned v) { *x = *x * 31 + v; }
__global__ void turn(unsigned* x, unsigned by) { *x = (*x << (by & 31)) | (*x >> (-by & 31)); }
__global__ void flip(unsigned* x) { *x = ~*x; }
__global__ void next() { }
__global__ void take(unsigned* x, const unsigned* y) { *x = *x * 17 + *y; }

struct Large {
    unsigned words[900];
};

__global__ void sum(unsigned* x, Large large) {
    unsigned all = 0;
    for (unsigned word : large.words) {
        all += word;
    }
    *x = *x * 7 + all;
}

// Every block and thread counts: shows the shape of the launch.
__global__ void count(unsigned* x) { atomicAdd(x, 1 + blockDim.x * 1000 + gridDim.x * 1000000); }

extern __shared__ unsigned dynamic[];
__global__ void shared(unsigned* x, unsigned words) {
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) {
        dynamic[i] = i;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        *x = *x * 3 + dynamic[words - 1];
    }
}

static unsigned turned(unsigned x, unsigned by) { return (x << (by & 31)) | (x >> (-by & 31)); }

static unsigned read(const DeviceArray<unsigned>& x, cudaStream_t stream) {
    unsigned value = 0;
    CHECK(cudaMemcpyAsync(&value, x.get(), sizeof(value), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return value;
}

// The same kernel many times, then steps of several, and steps that change on the way.
static void steps(const char* name, cudaStream_t stream) {
    DeviceArray<unsigned> x(1);
    x.zero();
    CHECK(cudaDeviceSynchronize());
    unsigned expected = 0;
    for (unsigned i = 0; i < 6000; i++) {
        mix<<<1, 1, 0, stream>>>(x.get(), i);
        expected = expected * 31 + i;
    }
    EXPECT(read(x, stream) == expected);
    for (unsigned step = 0; step < 600; step++) {
        for (unsigned i = 0; i < 3; i++) {
            mix<<<1, 1, 0, stream>>>(x.get(), step + i);
            turn<<<1, 1, 0, stream>>>(x.get(), step);
            expected = turned(expected * 31 + step + i, step);
        }
        next<<<1, 1, 0, stream>>>();
        flip<<<1, 1, 0, stream>>>(x.get());
        mix<<<1, 1, 0, stream>>>(x.get(), 5);
        flip<<<1, 1, 0, stream>>>(x.get());
        expected = ~(~expected * 31 + 5);
        if (step % 97 == 96) {
            // Something else now and then.
            CHECK(cudaMemsetAsync(x.get(), 7, sizeof(unsigned), stream));
            expected = 0x07070707;
        }
        if (step > 300) {
            mix<<<1, 1, 0, stream>>>(x.get(), 11);
            expected = expected * 31 + 11;
        }
    }
    EXPECT(read(x, stream) == expected);
    printf("%s: %08x\n", name, expected);
}

int main() {
    cudaStream_t plain, apart, urgent;
    CHECK(cudaStreamCreate(&plain));
    CHECK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
    int least = 0, most = 0;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &most));
    CHECK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, most));
    steps("default stream", nullptr);
    steps("stream", plain);
    steps("stream of its own", apart);
    steps("stream with a priority", urgent);

    // Several threads, each with a stream.
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([] {
            cudaStream_t stream;
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            DeviceArray<unsigned> x(1);
            x.zero();
            CHECK(cudaDeviceSynchronize());
            unsigned expected = 0;
            for (unsigned i = 0; i < 5000; i++) {
                mix<<<1, 1, 0, stream>>>(x.get(), i);
                expected = expected * 31 + i;
            }
            EXPECT(read(x, stream) == expected);
            CHECK(cudaStreamDestroy(stream));
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    printf("threads: ok\n");

    // The default stream waits for the other, which waits for it, launch by launch and row by row.
    DeviceArray<unsigned> x(1), y(1);
    x.zero();
    y.zero();
    unsigned a = 0, b = 0;
    for (unsigned round = 0; round < 400; round++) {
        for (unsigned i = 0; i < 1 + round % 9; i++) {
            mix<<<1, 1, 0, plain>>>(x.get(), round + i);
            a = a * 31 + round + i;
        }
        for (unsigned i = 0; i < 1 + round % 5; i++) {
            take<<<1, 1>>>(y.get(), x.get());
            b = b * 17 + a;
        }
        take<<<1, 1, 0, plain>>>(x.get(), y.get());
        a = a * 17 + b;
    }
    EXPECT(read(x, plain) == a && read(y, nullptr) == b);
    printf("two streams: %08x %08x\n", a, b);

    // Shapes and sizes of parameters that change.
    x.zero();
    a = 0;
    for (unsigned i = 0; i < 1000; i++) {
        const unsigned blocks = 1 + i / 250, size = 1 + i % 3;
        count<<<blocks, size, 0, plain>>>(x.get());
        a += blocks * size * (1 + size * 1000 + blocks * 1000000);
    }
    EXPECT(read(x, plain) == a);
    Large large = {};
    for (unsigned i = 0; i < 500; i++) {
        large.words[i] = i;
        large.words[899] = i * 3;
        sum<<<1, 1, 0, plain>>>(x.get(), large);
        unsigned all = 0;
        for (unsigned word : large.words) {
            all += word;
        }
        a = a * 7 + all;
    }
    EXPECT(read(x, plain) == a);
    printf("shapes and parameters: %08x\n", a);

    // A function that may have more shared memory from some time on; launches that may not have so
    // much fail.
    const unsigned words = 14000;
    for (unsigned i = 0; i < 200; i++) {
        shared<<<1, 32, 48 << 10, plain>>>(x.get(), 12288);
        a = a * 3 + 12287;
    }
    shared<<<1, 32, words * 4, plain>>>(x.get(), words);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(shared, cudaFuncAttributeMaxDynamicSharedMemorySize, words * 4));
    for (unsigned i = 0; i < 200; i++) {
        shared<<<1, 32, words * 4, plain>>>(x.get(), words);
        a = a * 3 + words - 1;
    }
    CHECK(cudaGetLastError());
    EXPECT(read(x, plain) == a);
    printf("shared memory: %08x\n", a);

    // Streams that come and go, some of them in the place of others.
    for (unsigned i = 0; i < 60; i++) {
        cudaStream_t stream;
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (unsigned j = 0; j < 160; j++) {
            mix<<<1, 1, 0, stream>>>(x.get(), i ^ j);
            a = a * 31 + (i ^ j);
        }
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaStreamDestroy(stream));
    }
    EXPECT(read(x, plain) == a);
    // After a reset nothing is left of what was.
    CHECK(cudaDeviceReset());
    steps("after a reset", nullptr);
    return outcome();
}
