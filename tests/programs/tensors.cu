// Loads tensors as safetensors does: copies each from a mapping of the file into page-locked or
// other memory, and from there to the device; one is changed before. The first argument names the
// file, each further one is a tensor's size, in the file's order.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "check.h"

int main(int argc, char** argv) {
    EXPECT(argc > 2);
    int fd = open(argv[1], O_RDONLY);
    struct stat facts;
    EXPECT(fd >= 0 && fstat(fd, &facts) == 0);
    void* mapping = mmap(nullptr, facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    EXPECT(mapping != MAP_FAILED);
    close(fd);
    unsigned long long header;
    memcpy(&header, mapping, 8);
    const unsigned char* tensor = (unsigned char*)mapping + 8 + header;
    for (int at = 2; at < argc; at++) {
        const size_t bytes = atol(argv[at]);
        unsigned char *locked, *device;
        std::vector<unsigned char> plain(tensor, tensor + bytes), back(bytes);
        CHECK(cudaMallocHost(&locked, bytes));
        CHECK(cudaMalloc(&device, bytes));
        auto same = [&](const unsigned char* wanted) {
            CHECK(cudaMemcpy(back.data(), device, bytes, cudaMemcpyDeviceToHost));
            CHECK(cudaMemset(device, 0, bytes));
            CHECK(cudaDeviceSynchronize());
            return memcmp(back.data(), wanted, bytes) == 0;
        };
        memcpy(locked, tensor, bytes);
        CHECK(cudaMemcpyAsync(device, locked, bytes, cudaMemcpyHostToDevice));
        EXPECT(same(tensor));
        CHECK(cudaMemcpy(device, plain.data(), bytes, cudaMemcpyHostToDevice));
        EXPECT(same(tensor));
        plain[bytes - 1] ^= 1;
        CHECK(cudaMemcpy(device, plain.data(), bytes, cudaMemcpyHostToDevice));
        EXPECT(same(plain.data()));
        CHECK(cudaFree(device));
        CHECK(cudaFreeHost(locked));
        tensor += bytes;
    }
    printf("%d tensors are loaded\n", argc - 2);
    return outcome();
}
