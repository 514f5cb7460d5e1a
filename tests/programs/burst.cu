// Many launches in a row, then one wait.
//
//   burst [LAUNCHES]    default 10,000
#include "check.h"

__global__ void add_one(unsigned* counter) { *counter += 1; }

int main(int argc, char** argv) {
    const unsigned launches = argc > 1 ? static_cast<unsigned>(atoi(argv[1])) : 10000;
    DeviceArray<unsigned> counter(1);
    counter.zero();
    for (unsigned i = 0; i < launches; i++) {
        add_one<<<1, 1>>>(counter.get());
    }
    CHECK(cudaGetLastError());
    unsigned seen = counter.download()[0];
    printf("burst: %u launches, counter %u\n", launches, seen);
    EXPECT(seen == launches);
    return 0;
}
