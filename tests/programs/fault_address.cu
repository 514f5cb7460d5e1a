// A store far outside every allocation.
#include "fault.h"

__global__ void store_far_away(int* data) { data[size_t(1) << 38] = 1; }

int main() {
    DeviceArray<int> data(1000);
    return expect_sticky_fault([&] { store_far_away<<<1, 32>>>(data.get()); }, cudaErrorIllegalAddress);
}
