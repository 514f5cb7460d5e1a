// A kernel that takes a while.
#pragma once

// Steps that no compiler can take together (xorshift): some tenths of a second for 50 million on
// any device.
__host__ __device__ inline unsigned step(unsigned value) {
    value ^= value << 13;
    value ^= value >> 17;
    return value ^ value << 5;
}

static __global__ void work(unsigned* state, int steps) {
    unsigned value = *state;
    for (int i = 0; i < steps; i++) {
        value = step(value);
    }
    *state = value;
}
