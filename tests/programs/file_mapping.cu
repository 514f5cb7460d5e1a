// Copies a mapped file to the device, and again after parts of the mapping were written. The first
// argument names the file.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "check.h"

int main(int argc, char** argv) {
    EXPECT(argc == 2);
    int fd = open(argv[1], O_RDONLY);
    struct stat facts;
    EXPECT(fd >= 0 && fstat(fd, &facts) == 0);
    const size_t bytes = facts.st_size;
    unsigned char* device;
    CHECK(cudaMalloc(&device, bytes));
    std::vector<unsigned char> back(bytes);
    auto same = [&](const unsigned char* wanted, size_t count) {
        CHECK(cudaMemcpy(back.data(), device, count, cudaMemcpyDeviceToHost));
        return memcmp(back.data(), wanted, count) == 0;
    };
    auto* mapped = (unsigned char*)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    EXPECT(mapped != MAP_FAILED);
    close(fd);
    // All of it, and a part between pages.
    CHECK(cudaMemcpy(device, mapped, bytes, cudaMemcpyHostToDevice));
    EXPECT(same(mapped, bytes));
    CHECK(cudaMemset(device, 0, bytes));
    CHECK(cudaMemcpyAsync(device, mapped + 12345, 5000001, cudaMemcpyHostToDevice));
    EXPECT(same(mapped + 12345, 5000001));
    // In the order of the stream.
    CHECK(cudaMemsetAsync(device, 1, bytes));
    CHECK(cudaMemcpyAsync(device, mapped, 6000000, cudaMemcpyHostToDevice));
    CHECK(cudaMemsetAsync(device, 2, 100));
    EXPECT(!same(mapped, 100) && same(mapped, 0));
    CHECK(cudaMemcpy(back.data(), device, 6000001, cudaMemcpyDeviceToHost));
    EXPECT(back[99] == 2 && !memcmp(&back[100], mapped + 100, 6000000 - 100) && back[6000000] == 1);
    // What the program has written is in its memory alone.
    mapped[7000000] ^= 0x55;
    CHECK(cudaMemcpy(device, mapped, bytes, cudaMemcpyHostToDevice));
    EXPECT(same(mapped, bytes));
    // Other memory.
    std::vector<unsigned char> own(mapped, mapped + bytes);
    CHECK(cudaMemcpy(device, own.data(), bytes, cudaMemcpyHostToDevice));
    EXPECT(same(mapped, bytes));
    CHECK(cudaFree(device));
    int for_files = 0;
    CHECK(cudaDeviceGetAttribute(&for_files, cudaDevAttrGPUDirectRDMASupported, 0));
    printf("mapped files are copied, GPUDirect %d\n", for_files);
    return outcome();
}
