// A kernel that traps.
#include "fault.h"

__global__ void trap_if(bool really) {
    if (really) {
        __trap();
    }
}

int main() {
    trap_if<<<4, 32>>>(false);
    CHECK(cudaDeviceSynchronize());
    return expect_sticky_fault([] { trap_if<<<4, 32>>>(true); }, cudaErrorLaunchFailure);
}
