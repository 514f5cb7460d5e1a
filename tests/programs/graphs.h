// What the programs about graphs share: kernels that show in their results how often they ran, and
// a look at those.
#pragma once

#include "check.h"

__global__ void add(int* data, int count, int amount) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[i] += amount;
}

__global__ void multiply(int* data, int count, int factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[i] *= factor;
}

__global__ void sum_of(int* out, const int* a, const int* b, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = a[i] + b[i];
}

static const int COUNT = 1000;
static const int BLOCKS = (COUNT + 127) / 128;

inline bool all(const std::vector<int>& values, int wanted) {
    for (int value : values) {
        if (value != wanted) {
            printf("%d instead of %d\n", value, wanted);
            return false;
        }
    }
    return true;
}
