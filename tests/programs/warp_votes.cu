// Votes, matches, masks, ballots over parts of a warp, shuffles of every kind, and divergence that
// comes together again.
#include "check.h"

constexpr unsigned ALL = 0xffffffffu;

__global__ void votes(unsigned* out) {
    unsigned lane = threadIdx.x % 32;
    unsigned* mine = out + threadIdx.x * 12;
    mine[0] = __ballot_sync(ALL, lane % 3 == 0);
    mine[1] = static_cast<unsigned>(__all_sync(ALL, lane < 32));
    mine[2] = static_cast<unsigned>(__all_sync(ALL, lane < 31));
    mine[3] = static_cast<unsigned>(__any_sync(ALL, lane == 17));
    mine[4] = static_cast<unsigned>(__any_sync(ALL, lane > 31));
    mine[5] = __match_any_sync(ALL, lane / 5);
    int same = 0;
    mine[6] = __match_all_sync(ALL, threadIdx.x / 32, &same);
    mine[7] = static_cast<unsigned>(same);
    mine[8] = 0;
    if (lane % 2 == 1) {
        // Half of the warp talks among itself.
        mine[8] = __ballot_sync(0xaaaaaaaau, lane > 15);
    }
    mine[9] = __activemask();
    mine[10] = static_cast<unsigned>(__match_any_sync(ALL, static_cast<unsigned long long>(lane % 2) << 40));
    mine[11] = static_cast<unsigned>(__popc(__ballot_sync(ALL, lane >= 8)));
}

__global__ void shuffles(int* out) {
    int lane = static_cast<int>(threadIdx.x % 32);
    int* mine = out + threadIdx.x * 8;
    int value = lane * 10;
    mine[0] = __shfl_sync(ALL, value, 5);
    mine[1] = __shfl_sync(ALL, value, lane + 1);      // the source wraps at the width
    mine[2] = __shfl_up_sync(ALL, value, 3);
    mine[3] = __shfl_down_sync(ALL, value, 3);
    mine[4] = __shfl_xor_sync(ALL, value, 21);
    mine[5] = __shfl_down_sync(ALL, value, 3, 8);     // within groups of 8
    mine[6] = __shfl_sync(ALL, value, 2, 16);
    mine[7] = static_cast<int>(__shfl_xor_sync(ALL, static_cast<double>(value) + 0.5, 1) * 2);
}

// Lanes leave a loop at different times and meet again after it.
__global__ void diverge(const int* lengths, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int steps = 0, value = i;
    for (int k = 0; k < lengths[i]; k++) {
        value = value % 2 == 0 ? value / 2 : 3 * value + 1;
        switch (value % 4) {
            case 0: steps += 1; break;
            case 1: steps += 10; break;
            case 2: steps += 100; break;
            default: steps += 1000; break;
        }
    }
    __syncwarp();
    int sum = __shfl_xor_sync(ALL, steps, 1);
    out[i] = steps + 3 * sum;
}

// A block that is not a whole number of warps: barriers and votes among those that are there.
__global__ void ragged(unsigned* out) {
    __shared__ unsigned sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    unsigned there = threadIdx.x < 32 ? ALL : (1u << (blockDim.x - 32)) - 1;
    unsigned ballot = __ballot_sync(there, 1);
    if (threadIdx.x % 32 == 0) atomicAdd(&sum, static_cast<unsigned>(__popc(ballot)));
    int positive = __syncthreads_count(threadIdx.x % 5 == 0);
    int all = __syncthreads_and(threadIdx.x < 1000);
    int any = __syncthreads_or(threadIdx.x == 44);
    out[threadIdx.x] = sum * 1000 + static_cast<unsigned>(positive) * 10 + static_cast<unsigned>(all != 0) * 2 +
                       static_cast<unsigned>(any != 0);
}

int main() {
    DeviceArray<unsigned> dvotes(64 * 12);
    votes<<<1, 64>>>(dvotes.get());
    CHECK(cudaGetLastError());
    std::vector<unsigned> v = dvotes.download();
    for (unsigned i = 0; i < 64; i++) {
        unsigned lane = i % 32, thirds = 0, fives = 0;
        for (unsigned other = 0; other < 32; other++) {
            thirds |= (other % 3 == 0 ? 1u : 0u) << other;
            fives |= (other / 5 == lane / 5 ? 1u : 0u) << other;
        }
        const unsigned* mine = &v[i * 12];
        EXPECT(mine[0] == thirds && mine[1] == 1 && mine[2] == 0 && mine[3] == 1 && mine[4] == 0 && mine[5] == fives);
        EXPECT(mine[6] == ALL && mine[7] == 1 && mine[8] == (lane % 2 ? 0xaaaa0000u : 0) && (mine[9] >> lane & 1) == 1);
        EXPECT(mine[10] == (lane % 2 ? 0xaaaaaaaau : 0x55555555u) && mine[11] == 24);
    }
    printf("votes and matches: right\n");

    DeviceArray<int> dshuffles(64 * 8);
    shuffles<<<1, 64>>>(dshuffles.get());
    CHECK(cudaGetLastError());
    std::vector<int> s = dshuffles.download();
    for (int i = 0; i < 64; i++) {
        int lane = i % 32;
        const int* mine = &s[i * 8];
        EXPECT(mine[0] == 50 && mine[1] == (lane + 1) % 32 * 10 && mine[2] == (lane < 3 ? lane : lane - 3) * 10);
        EXPECT(mine[3] == (lane > 28 ? lane : lane + 3) * 10 && mine[4] == (lane ^ 21) * 10);
        EXPECT(mine[5] == (lane % 8 > 4 ? lane : lane + 3) * 10 && mine[6] == (lane / 16 * 16 + 2) * 10);
        EXPECT(mine[7] == (lane ^ 1) * 20 + 1);
    }
    printf("shuffles: right\n");

    const int n = 256;
    std::vector<int> lengths(n);
    Random random(14);
    for (int& length : lengths) length = static_cast<int>(random.below(40));
    DeviceArray<int> dlengths(lengths), dout(n);
    diverge<<<2, 128>>>(dlengths.get(), dout.get());
    CHECK(cudaGetLastError());
    std::vector<int> out = dout.download(), steps(n, 0);
    for (int i = 0; i < n; i++) {
        int value = i;
        for (int k = 0; k < lengths[i]; k++) {
            value = value % 2 == 0 ? value / 2 : 3 * value + 1;
            int add[] = {1, 10, 100, 1000};
            steps[i] += add[value % 4];
        }
    }
    for (int i = 0; i < n; i++) EXPECT(out[i] == steps[i] + 3 * steps[i ^ 1]);
    printf("divergence: right\n");

    DeviceArray<unsigned> dragged(45);
    ragged<<<1, 45>>>(dragged.get());
    CHECK(cudaGetLastError());
    for (unsigned value : dragged.download()) EXPECT(value == 45 * 1000 + 9 * 10 + 2 + 1);
    printf("a ragged block: right\n");
    return 0;
}
