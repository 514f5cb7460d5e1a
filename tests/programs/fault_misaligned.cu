// A load of four bytes from an odd address. A GPU calls that misaligned, the software device an
// illegal address.
#include "fault.h"

#include <cstring>

__global__ void load_odd(const char* data, int* out) { *out = *reinterpret_cast<const int*>(data + 1); }

int main() {
    DeviceArray<char> data(64);
    DeviceArray<int> out(1);
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    bool gpu = strstr(properties.name, "NVIDIA") != nullptr;
    return expect_sticky_fault([&] { load_odd<<<1, 1>>>(data.get(), out.get()); },
                               gpu ? cudaErrorMisalignedAddress : cudaErrorIllegalAddress);
}
