// Copies to the host again and again, and waits for nothing else in between: not even as the
// runtime's own copies do.
//
//   only_copies [MILLISECONDS [COPIES MEBIBYTES]]    It then stays for so long, so that a test can
//                                                    look at what the copies have left behind.
#include "check.h"
#include "driver.h"

#include <chrono>
#include <thread>
#include <vector>

int main(int argc, char** argv) {
    const int copies = argc > 3 ? atoi(argv[2]) : 64;
    const size_t bytes = argc > 3 ? strtoull(argv[3], nullptr, 10) << 20 : 8 << 20;
    DeviceArray<unsigned char> device(bytes);
    std::vector<unsigned char> host(bytes);
    for (int copy = 0; copy < copies; copy++) {
        const CUdeviceptr from = reinterpret_cast<CUdeviceptr>(device.get());
        CHECK_DRIVER(DRIVER(cuMemsetD8Async)(from, static_cast<unsigned char>(copy), bytes, nullptr));
        CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(host.data(), from, bytes));
        for (size_t at : {size_t(0), bytes / 2, bytes - 1}) EXPECT(host[at] == copy);
    }
    printf("copied\n");
    fflush(stdout);
    if (argc > 1) std::this_thread::sleep_for(std::chrono::milliseconds(atoi(argv[1])));
    return 0;
}
