// What every test program uses: stop at the first wrong result, and input that is the same
// everywhere.
//
// A program prints neither times nor addresses, so that its output can be compared byte for byte
// between devices and between a direct run and one through a server. It exits with 0 only if
// everything was right.
#pragma once

#include <cuda_runtime.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

// Ends the program. What CUDA's runtime does at an exit would let other threads that use it crash:
// only the first thread, which in most programs waits for those, exits in full.
[[noreturn]] inline void end_wrong() {
    fflush(stdout);
    if (syscall(SYS_gettid) != getpid()) _Exit(1);
    exit(1);
}

// The call must succeed.
#define CHECK(call)                                                                                   \
    do {                                                                                              \
        cudaError_t check_result = (call);                                                            \
        if (check_result != cudaSuccess) {                                                            \
            printf("%s:%d: %s gave %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(check_result)); \
            end_wrong();                                                                              \
        }                                                                                             \
    } while (0)

// The condition must hold.
#define EXPECT(condition)                                                    \
    do {                                                                     \
        if (!(condition)) {                                                  \
            printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            end_wrong();                                                     \
        }                                                                    \
    } while (0)

// Calls that did not give the error they should have. A program that provokes errors goes on after
// one, so that one run shows them all, and returns `outcome()` from main.
inline int unexpected_errors = 0;

inline int outcome() { return unexpected_errors == 0 ? 0 : 1; }

// The expression must give this error; it is printed with its name.
#define EXPECT_ERROR(call, wanted)                                                                        \
    do {                                                                                                  \
        cudaError_t expect_result = (call);                                                               \
        printf("%s: %s\n", #call, cudaGetErrorName(expect_result));                                       \
        if (expect_result != (wanted)) {                                                                  \
            printf("%s:%d: expected %s\n", __FILE__, __LINE__, cudaGetErrorName(wanted));                 \
            unexpected_errors++;                                                                          \
        }                                                                                                 \
    } while (0)

// The expression must give one of two errors, where drivers differ; it is printed with its name.
#define EXPECT_EITHER(call, one, other)                                                                   \
    do {                                                                                                  \
        cudaError_t either_result = (call);                                                               \
        printf("%s: %s\n", #call, cudaGetErrorName(either_result));                                       \
        if (either_result != (one) && either_result != (other)) {                                         \
            printf("%s:%d: expected %s\n", __FILE__, __LINE__, cudaGetErrorName(one));                    \
            unexpected_errors++;                                                                          \
        }                                                                                                 \
    } while (0)

// Numbers without meaning, the same in every run (splitmix64).
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }

    // Less than `bound`.
    uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) * bound >> 32); }

    // In [0, 1), a multiple of 2^-24.
    float unit() { return static_cast<float>(next() >> 40) * 0x1p-24f; }

private:
    uint64_t state_;
};

// FNV-1a over the bytes: a short name for a whole result.
template <typename T>
uint64_t checksum(const std::vector<T>& values) {
    uint64_t hash = 0xcbf29ce484222325ull;
    auto bytes = reinterpret_cast<const unsigned char*>(values.data());
    for (size_t i = 0; i < values.size() * sizeof(T); i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    }
    return hash;
}

// Device memory that frees itself.
template <typename T>
class DeviceArray {
public:
    explicit DeviceArray(size_t count) : count_(count) { CHECK(cudaMalloc(&data_, count * sizeof(T))); }
    explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { upload(values); }
    ~DeviceArray() { cudaFree(data_); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    T* get() const { return data_; }
    size_t count() const { return count_; }
    size_t bytes() const { return count_ * sizeof(T); }

    void upload(const std::vector<T>& values) {
        CHECK(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
    }

    std::vector<T> download() const {
        std::vector<T> values(count_);
        CHECK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
        return values;
    }

    // Waits, for cudaMemset does not: non-blocking streams would not be ordered behind it.
    void zero() {
        CHECK(cudaMemset(data_, 0, bytes()));
        CHECK(cudaStreamSynchronize(nullptr));
    }

private:
    T* data_ = nullptr;
    size_t count_;
};

// As many blocks as it takes for one thread per element.
inline unsigned blocks_for(size_t elements, unsigned threads) {
    return static_cast<unsigned>((elements + threads - 1) / threads);
}
