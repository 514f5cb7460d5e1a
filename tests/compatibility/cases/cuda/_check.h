// What the CUDA cases share: errors end the program, results are printed as checksums.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                             \
    do {                                                                                        \
        cudaError_t status_of_call = (call);                                                    \
        if (status_of_call != cudaSuccess) {                                                    \
            printf("FAILED: %s: %s\n", #call, cudaGetErrorName(status_of_call));                \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

inline void require(bool holds, const char *what) {
    if (!holds) {
        printf("FAILED: %s\n", what);
        exit(1);
    }
}

// FNV-1a over all bytes.
inline void exact(const char *name, const void *data, size_t bytes) {
    uint64_t hash = 1469598103934665603ull;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ static_cast<const uint8_t *>(data)[i]) * 1099511628211ull;
    printf("%s: %zu bytes %016llx\n", name, bytes, static_cast<unsigned long long>(hash));
}
