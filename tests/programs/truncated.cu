// Registers a file's memory, takes its pages away, and copies from it. Whatever comes of that is
// printed; what the device copied before is right.
#include "check.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

int main() {
    const size_t bytes = 4 << 20;
    int file = memfd_create("test", MFD_CLOEXEC);
    EXPECT(file >= 0 && ftruncate(file, bytes) == 0);
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT(memory != MAP_FAILED);
    memset(memory, 7, bytes);
    CHECK(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
    DeviceArray<unsigned char> device(bytes);
    CHECK(cudaMemcpyAsync(device.get(), memory, bytes, cudaMemcpyHostToDevice));
    EXPECT(device.download() == std::vector<unsigned char>(bytes, 7));
    EXPECT(ftruncate(file, 0) == 0);
    cudaError_t copied = cudaMemcpyAsync(device.get(), memory, bytes, cudaMemcpyHostToDevice);
    if (copied == cudaSuccess) copied = cudaDeviceSynchronize();
    printf("%s\n", cudaGetErrorName(copied));
    fflush(stdout);
    _exit(0);
}
