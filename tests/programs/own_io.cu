// Files by Outboard's own header for C. The first argument names a folder for files; with a second
// one, the driver library is taken for one that is not Outboard's.
#include "../../include/outboard/io.h"

#include <string>
#include <vector>

#include "check.h"

int main(int argc, char** argv) {
    EXPECT(argc >= 2);
    const std::string in = std::string(argv[1]) + "/in", out = std::string(argv[1]) + "/out";
    const size_t size = 20000003;
    std::vector<unsigned char> bytes(size), back(size);
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    int made = open(in.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT(made >= 0 && write(made, bytes.data(), size) == (ssize_t)size);
    close(made);
    unsigned char* memory;
    CHECK(cudaMalloc(&memory, size));

    EXPECT(!outboard_open(in.c_str(), "a") && errno == EINVAL);
    EXPECT(!outboard_open((in + "/none").c_str(), "r") && errno == ENOTDIR);
    outboard_file* file = outboard_open(in.c_str(), "r");
    EXPECT(file);
    if (argc > 2) file->table = nullptr;
    EXPECT(outboard_read(file, memory, size) == (ssize_t)size && file->position == (off_t)size);
    CHECK(cudaMemcpy(back.data(), memory, size, cudaMemcpyDeviceToHost));
    EXPECT(back == bytes);
    EXPECT(outboard_read(file, memory, 5) == 0);
    EXPECT(outboard_seek(file, -100, SEEK_END) == (off_t)size - 100);
    EXPECT(outboard_read(file, memory + 7, 1000) == 100);
    CHECK(cudaMemcpy(back.data(), memory + 7, 100, cudaMemcpyDeviceToHost));
    EXPECT(!memcmp(back.data(), &bytes[size - 100], 100));
    EXPECT(outboard_pread(file, memory, 10, 3) == 10 && outboard_seek(file, 0, SEEK_CUR) == (off_t)size);
    EXPECT(outboard_seek(file, -1, SEEK_SET) == -1 && errno == EINVAL);
    EXPECT(outboard_write(file, memory, 10) == -1 && errno == EBADF && outboard_status(file) == 0);
    uint64_t moved[4];
    outboard_moved(file, moved);
    printf("read by the server %d, here %d\n", moved[0] > size, moved[1] > size);
    outboard_close(file);

    CHECK(cudaMemcpy(memory, bytes.data(), size, cudaMemcpyHostToDevice));
    file = outboard_open(out.c_str(), "w+");
    EXPECT(file);
    if (argc > 2) file->table = nullptr;
    EXPECT(outboard_seek(file, 5, SEEK_SET) == 5);
    EXPECT(outboard_write(file, memory, size) == (ssize_t)size && outboard_sync(file) == 0);
    struct stat facts;
    EXPECT(stat(out.c_str(), &facts) == 0 && facts.st_size == (off_t)size + 5);
    int written = open(out.c_str(), O_RDONLY);
    EXPECT(pread(written, back.data(), size, 5) == (ssize_t)size && back == bytes);
    close(written);
    outboard_moved(file, moved);
    printf("written by the server %d, here %d\n", moved[2] >= size, moved[3] >= size);
    outboard_close(file);
    CHECK(cudaFree(memory));
    return outcome();
}
