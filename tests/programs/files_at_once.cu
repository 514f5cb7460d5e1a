// Has so many files of a folder open at once, reads each, in turn with four threads, and says how
// many bytes there were and their sum. The files are named by their numbers.
#include <sys/resource.h>

#include <atomic>
#include <thread>

#include "cufile.h"

int main(int argc, char** argv) {
    EXPECT(argc == 3);
    const std::string folder = argv[1];
    const size_t count = atoi(argv[2]);
    rlimit limit;
    EQUAL(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    EQUAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
    std::vector<Handle> handles(count);
    for (size_t number = 0; number < count; number++) {
        int fd = open((folder + "/" + std::to_string(number)).c_str(), O_RDONLY);
        EXPECT(fd >= 0);
        Description description = {1, {fd}, nullptr};
        WELL(cuFileHandleRegister(&handles[number], &description));
        close(fd);
    }
    const size_t most = 4096;
    std::atomic<size_t> next{0};
    std::atomic<unsigned long long> bytes{0}, sum{0};
    auto read = [&] {
        Memory memory(most);
        for (size_t number; (number = next++) < count;) {
            ssize_t moved = cuFileRead(handles[number], memory.at, most, 0, 0);
            EXPECT(moved >= 0);
            std::vector<unsigned char> all = memory.get();
            for (ssize_t at = 0; at < moved; at++) sum += all[at];
            bytes += moved;
        }
    };
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++) threads.emplace_back(read);
    for (std::thread& thread : threads) thread.join();
    printf("%llu bytes, sum %llu\n", bytes.load(), sum.load());
    for (Handle handle : handles) cuFileHandleDeregister(handle);
    return outcome();
}
