// A kernel that goes wrong: the fault surfaces at the next call that waits, and every call after it
// gives it again.
#pragma once
#include "check.h"

// `launch` starts the kernel that goes wrong.
template <typename Launch>
int expect_sticky_fault(Launch launch, cudaError_t wanted) {
    DeviceArray<int> other(16);
    other.zero();
    CHECK(cudaDeviceSynchronize());
    launch();
    EXPECT_ERROR(cudaDeviceSynchronize(), wanted);
    // It stays.
    void* pointer = nullptr;
    int value = 0;
    EXPECT_ERROR(cudaMalloc(&pointer, 16), wanted);
    EXPECT_ERROR(cudaMemcpy(&value, other.get(), sizeof(value), cudaMemcpyDeviceToHost), wanted);
    EXPECT_ERROR(cudaDeviceSynchronize(), wanted);
    EXPECT_ERROR(cudaGetLastError(), wanted);
    cudaStream_t stream = nullptr;
    EXPECT_ERROR(cudaStreamCreate(&stream), wanted);
    launch();
    EXPECT_ERROR(cudaGetLastError(), wanted);
    // What needs no context goes on.
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    printf("%s\n", cudaGetErrorString(wanted));
    return outcome();
}
