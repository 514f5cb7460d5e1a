// 10,000 launches in a row, then one wait.
#include "check.h"

__global__ void add_one(unsigned* counter) { *counter += 1; }

int main() {
    const unsigned launches = 10000;
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
