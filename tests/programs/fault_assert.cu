// A failed assertion in a kernel. Its message goes to standard error.
#include "fault.h"

#include <cassert>

__global__ void assert_small(int limit) { assert(static_cast<int>(threadIdx.x) < limit); }

int main() {
    assert_small<<<1, 32>>>(32);
    CHECK(cudaDeviceSynchronize());
    return expect_sticky_fault([] { assert_small<<<1, 32>>>(31); }, cudaErrorAssert);
}
