// A load of four bytes from an odd address.
#include "fault.h"

__global__ void load_odd(const char* data, int* out) { *out = *reinterpret_cast<const int*>(data + 1); }

int main() {
    DeviceArray<char> data(64);
    DeviceArray<int> out(1);
    return expect_sticky_fault([&] { load_odd<<<1, 1>>>(data.get(), out.get()); }, cudaErrorMisalignedAddress);
}
