// Copies to the host again and again, and waits for nothing else in between: not even as the
// runtime's own copies do. With an argument, it then stays for so many milliseconds, so that a test
// can look at what the copies have left behind.
#include "check.h"
#include "driver.h"

#include <chrono>
#include <thread>
#include <vector>

static const size_t kBytes = 8 << 20;
static const int kCopies = 64;

int main(int argc, char** argv) {
    DeviceArray<unsigned char> device(kBytes);
    std::vector<unsigned char> host(kBytes);
    for (int copy = 0; copy < kCopies; copy++) {
        const CUdeviceptr from = reinterpret_cast<CUdeviceptr>(device.get());
        CHECK_DRIVER(DRIVER(cuMemsetD8Async)(from, static_cast<unsigned char>(copy), kBytes, nullptr));
        CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(host.data(), from, kBytes));
        for (size_t at : {size_t(0), kBytes / 2, kBytes - 1}) EXPECT(host[at] == copy);
    }
    printf("copied\n");
    fflush(stdout);
    if (argc > 1) std::this_thread::sleep_for(std::chrono::milliseconds(atoi(argv[1])));
    return 0;
}
