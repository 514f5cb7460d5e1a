// Reads a file into memory of a device, the first or the one that the third argument names, again
// and again, and says how much there was and the sum of its bytes. Before each further time, it
// waits for a file of the same name with the number behind it. How long each reading took, it says
// on standard error.
#include <chrono>

#include "cufile.h"

int main(int argc, char** argv) {
    EXPECT(argc >= 3);
    if (argc > 3) CHECK(cudaSetDevice(atoi(argv[3])));
    const std::string path = argv[1];
    const int times = atoi(argv[2]);
    int fd = open(path.c_str(), O_RDONLY);
    EXPECT(fd >= 0);
    struct stat facts;
    EQUAL(fstat(fd, &facts), 0);
    Handle handle;
    Description description = {1, {fd}, nullptr};
    WELL(cuFileHandleRegister(&handle, &description));
    Memory memory(facts.st_size);
    for (int time = 1; time <= times; time++) {
        for (const std::string go = path + "." + std::to_string(time); time > 1 && access(go.c_str(), F_OK);) {
            usleep(5000);
        }
        memory.fill(0);
        const auto begun = std::chrono::steady_clock::now();
        ssize_t moved = cuFileRead(handle, memory.at, memory.bytes, 0, 0);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
        fprintf(stderr, "%.3f seconds\n", took.count());
        unsigned long long sum = 0;
        for (unsigned char byte : memory.get()) sum += byte;
        printf("%d: %zd bytes, sum %llu\n", time, moved, sum);
        fflush(stdout);
    }
    cuFileHandleDeregister(handle);
    return outcome();
}
