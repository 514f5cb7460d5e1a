// Lists the devices this process sees, by name and UUID, and uses each.
#include "check.h"

__global__ void store(int* out, int value) { *out = value; }

int main() {
    int count = 0;
    cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess) {
        printf("%s\n", cudaGetErrorName(result));
        return 0;
    }
    printf("%d devices\n", count);
    for (int i = 0; i < count; i++) {
        cudaDeviceProp properties;
        CHECK(cudaGetDeviceProperties(&properties, i));
        printf("%d: %s, GPU-", i, properties.name);
        for (int byte = 0; byte < 16; byte++) {
            printf("%s%02x", byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "",
                   static_cast<unsigned char>(properties.uuid.bytes[byte]));
        }
        CHECK(cudaSetDevice(i));
        DeviceArray<int> out(1);
        store<<<1, 1>>>(out.get(), 40 + i);
        CHECK(cudaGetLastError());
        EXPECT(out.download()[0] == 40 + i);
        printf(", works\n");
    }
    return 0;
}
