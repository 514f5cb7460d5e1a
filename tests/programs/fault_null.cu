// A load through a null pointer, by one thread of many.
#include "fault.h"

__global__ void load_null(const int* data, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = i == 777 ? data[0] : i;
}

int main() {
    DeviceArray<int> out(1024);
    return expect_sticky_fault([&] { load_null<<<8, 128>>>(nullptr, out.get()); }, cudaErrorIllegalAddress);
}
