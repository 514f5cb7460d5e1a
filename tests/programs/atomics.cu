// Atomic operations in global and shared memory on 32 and 64 bits, integers and floating point, and
// a lock made of them.
#include "check.h"

#include <cstring>

struct Results {
    unsigned add, min_unsigned, max_unsigned, bits_and, bits_or, bits_xor, increment, decrement, exchange;
    int min_signed, max_signed, subtract;
    unsigned long long add64, max64, and64, compare64;
    float add_float;
    double add_double;
    unsigned shared_add, locked, tickets_seen;
    unsigned long long shared_max64;
};

__global__ void all_kinds(Results* r) {
    __shared__ unsigned sum;
    __shared__ unsigned long long maximum;
    if (threadIdx.x == 0) {
        sum = 0;
        maximum = 0;
    }
    __syncthreads();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&r->add, i);
    atomicMin(&r->min_unsigned, i + 5);
    atomicMax(&r->max_unsigned, i);
    atomicAnd(&r->bits_and, ~(1u << i % 32));
    atomicOr(&r->bits_or, 1u << i % 16);
    atomicXor(&r->bits_xor, i);
    atomicInc(&r->increment, 99);
    atomicDec(&r->decrement, 99);
    atomicMin(&r->min_signed, -static_cast<int>(i));
    atomicMax(&r->max_signed, static_cast<int>(i) - 7);
    atomicSub(&r->subtract, 2);
    atomicAdd(&r->add64, 0x100000001ull);
    atomicMax(&r->max64, static_cast<unsigned long long>(i) << 33);
    atomicAnd(&r->and64, ~(1ull << i % 64));
    atomicAdd(&r->add_float, 0.5f);
    atomicAdd(&r->add_double, 0.25);
    if (atomicExch(&r->exchange, i + 1) == 0) {
        atomicAdd(&r->tickets_seen, 1u);
    }
    // Compare-and-swap until it holds.
    unsigned long long seen = r->compare64, expected;
    do {
        expected = seen;
        seen = atomicCAS(&r->compare64, expected, expected + 3);
    } while (seen != expected);
    atomicAdd(&sum, 1u);
    atomicMax(&maximum, static_cast<unsigned long long>(i) << 20);
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(&r->shared_add, sum);
        atomicMax(&r->shared_max64, maximum);
    }
}

__device__ int lock = 0;

// One thread of each block takes the lock and adds without any atomic operation.
__global__ void with_lock(Results* r) {
    if (threadIdx.x == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) {
        }
        __threadfence();
        volatile unsigned* value = &r->locked;
        *value = *value + 1;
        __threadfence();
        atomicExch(&lock, 0);
    }
}

// The last block to arrive sums what the others left (the pattern of single-pass reductions).
__global__ void last_block(const int* values, int* partial, unsigned* arrived, int* total) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = values[blockIdx.x] * 2;
        __threadfence();
        last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int sum = 0;
        for (unsigned k = 0; k < gridDim.x; k++) sum += static_cast<volatile int*>(partial)[k];
        *total = sum;
    }
}

int main() {
    const unsigned blocks = 20, threads = 96, n = blocks * threads;
    Results start;
    memset(&start, 0, sizeof(start));
    start.min_unsigned = ~0u;
    start.bits_and = ~0u;
    start.and64 = ~0ull;
    start.subtract = 10000;
    DeviceArray<Results> dresults(std::vector<Results>{start});
    all_kinds<<<blocks, threads>>>(dresults.get());
    with_lock<<<blocks, 32>>>(dresults.get());
    CHECK(cudaGetLastError());
    Results r = dresults.download()[0];
    unsigned exclusive = 0;
    for (unsigned i = 0; i < n; i++) exclusive ^= i;
    EXPECT(r.add == n * (n - 1) / 2 && r.min_unsigned == 5 && r.max_unsigned == n - 1);
    EXPECT(r.bits_and == 0 && r.bits_or == 0xffff && r.bits_xor == exclusive);
    EXPECT(r.increment == n % 100 && r.decrement == (100 - n % 100) % 100);
    EXPECT(r.min_signed == -static_cast<int>(n - 1) && r.max_signed == static_cast<int>(n) - 8);
    EXPECT(r.subtract == 10000 - 2 * static_cast<int>(n));
    EXPECT(r.add64 == n * 0x100000001ull && r.max64 == static_cast<unsigned long long>(n - 1) << 33 && r.and64 == 0);
    EXPECT(r.add_float == n * 0.5f && r.add_double == n * 0.25 && r.tickets_seen == 1 && r.compare64 == n * 3);
    EXPECT(r.shared_add == n && r.shared_max64 == static_cast<unsigned long long>(n - 1) << 20);
    EXPECT(r.locked == blocks);
    printf("atomics: %u threads, all kinds right\n", n);

    std::vector<int> values(50);
    int wanted = 0;
    for (int i = 0; i < 50; i++) wanted += 2 * (values[i] = i * i);
    DeviceArray<int> dvalues(values), dpartial(50), dtotal(1);
    DeviceArray<unsigned> darrived(1);
    darrived.zero();
    last_block<<<50, 64>>>(dvalues.get(), dpartial.get(), darrived.get(), dtotal.get());
    CHECK(cudaGetLastError());
    EXPECT(dtotal.download()[0] == wanted);
    printf("last block: %d\n", wanted);
    return 0;
}
