// Integer arithmetic: widths and signs, high halves, division, shifts past the width, bit fields,
// byte permutation, saturation, conversions from and to floating point.
#include "check.h"

#include <climits>

constexpr int RESULTS = 36;

__host__ __device__ static unsigned reverse_bits(unsigned value) {
    unsigned result = 0;
    for (int i = 0; i < 32; i++) result |= (value >> i & 1) << (31 - i);
    return result;
}

__global__ void on_device(const unsigned* a, const unsigned* b, long long* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    unsigned x = a[i], y = b[i];
    int sx = static_cast<int>(x), sy = static_cast<int>(y);
    long long lx = static_cast<long long>(static_cast<unsigned long long>(x) << 32 | y), ly = static_cast<long long>(y) - sx;
    unsigned long long ulx = static_cast<unsigned long long>(lx);
    long long* r = out + i * RESULTS;
    r[0] = static_cast<int>(x * y);
    r[1] = __umulhi(x, y);
    r[2] = __mulhi(sx, sy);
    r[3] = __mul64hi(lx, ly);
    r[4] = static_cast<long long>(__umul64hi(ulx, static_cast<unsigned long long>(ly)));
    r[5] = sx / (sy == 0 || (sx == INT_MIN && sy == -1) ? 1 : sy);
    r[6] = sx % (sy == 0 || (sx == INT_MIN && sy == -1) ? 1 : sy);
    r[7] = x / (y | 1);
    r[8] = x % (y | 1);
    r[9] = lx / (ly == 0 ? 1 : ly);
    r[10] = static_cast<long long>(ulx % (static_cast<unsigned long long>(y) + 1));
    r[11] = __popc(x);
    r[12] = __clz(sx);
    r[13] = __ffs(sx);
    r[14] = __brev(x);
    r[15] = __popcll(ulx);
    r[16] = __clzll(lx);
    r[17] = __byte_perm(x, y, 0x5140);
    r[18] = __funnelshift_l(x, y, y % 32);
    r[19] = __funnelshift_r(x, y, x % 32);
    r[20] = static_cast<long long>(x >> (y % 32));
    r[21] = sx >> (y % 32);
    r[22] = static_cast<int>(x << (y % 32));
    r[23] = lx >> (y % 64);
    r[24] = min(sx, sy);
    r[25] = max(x, y);
    r[26] = abs(sx == INT_MIN ? 0 : sx);
    r[27] = __sad(sx, sy, 9u);
    r[28] = static_cast<signed char>(x) * static_cast<short>(y);
    r[29] = static_cast<unsigned char>(x) + static_cast<unsigned short>(y);
    r[30] = static_cast<int>(static_cast<float>(sx) * 0.5f);
    r[31] = __float2int_rn(__int2float_rz(sx) * 1e-3f);
    r[32] = static_cast<long long>(static_cast<double>(lx));
    r[33] = static_cast<unsigned char>(min(max(sx, 0), 255));
    r[34] = __dp4a(sx, sy, 11);
    r[35] = __hadd(sx, sy);
}

static long long high(__int128 value) { return static_cast<long long>(value >> 64); }

static void on_host(unsigned x, unsigned y, long long* r) {
    int sx = static_cast<int>(x), sy = static_cast<int>(y);
    long long lx = static_cast<long long>(static_cast<unsigned long long>(x) << 32 | y), ly = static_cast<long long>(y) - sx;
    unsigned long long ulx = static_cast<unsigned long long>(lx), uly = static_cast<unsigned long long>(ly);
    r[0] = static_cast<int>(x * y);
    r[1] = static_cast<long long>(static_cast<unsigned long long>(x) * y >> 32);
    r[2] = static_cast<long long>(sx) * sy >> 32;
    r[3] = high(static_cast<__int128>(lx) * ly);
    r[4] = static_cast<long long>(static_cast<unsigned __int128>(ulx) * uly >> 64);
    int divisor = sy == 0 || (sx == INT_MIN && sy == -1) ? 1 : sy;
    r[5] = sx / divisor;
    r[6] = sx % divisor;
    r[7] = x / (y | 1);
    r[8] = x % (y | 1);
    r[9] = lx / (ly == 0 ? 1 : ly);
    r[10] = static_cast<long long>(ulx % (static_cast<unsigned long long>(y) + 1));
    r[11] = __builtin_popcount(x);
    r[12] = x ? __builtin_clz(x) : 32;
    r[13] = __builtin_ffs(sx);
    r[14] = reverse_bits(x);
    r[15] = __builtin_popcountll(ulx);
    r[16] = ulx ? __builtin_clzll(ulx) : 64;
    // Bytes 0, 4, 1, 5 of the pair, lowest first.
    r[17] = (x & 0xff) | (y & 0xff) << 8 | (x >> 8 & 0xff) << 16 | (y >> 8 & 0xff) << 24;
    unsigned long long pair = static_cast<unsigned long long>(y) << 32 | x;
    r[18] = static_cast<unsigned>(pair << (y % 32) >> 32);
    r[19] = static_cast<unsigned>(pair >> (x % 32));
    r[20] = x >> (y % 32);
    r[21] = sx >> (y % 32);
    r[22] = static_cast<int>(x << (y % 32));
    r[23] = lx >> (y % 64);
    r[24] = std::min(sx, sy);
    r[25] = std::max(x, y);
    r[26] = std::abs(sx == INT_MIN ? 0 : sx);
    r[27] = static_cast<unsigned>(std::llabs(static_cast<long long>(sx) - sy) + 9);
    r[28] = static_cast<signed char>(x) * static_cast<short>(y);
    r[29] = static_cast<unsigned char>(x) + static_cast<unsigned short>(y);
    r[30] = static_cast<int>(static_cast<float>(sx) * 0.5f);
    float towards_zero = static_cast<float>(sx);
    if (std::fabs(static_cast<double>(towards_zero)) > std::fabs(static_cast<double>(sx))) {
        towards_zero = std::nextafterf(towards_zero, 0.0f);
    }
    r[31] = static_cast<int>(std::nearbyintf(towards_zero * 1e-3f));
    r[32] = static_cast<long long>(static_cast<double>(lx));
    r[33] = static_cast<unsigned char>(std::min(std::max(sx, 0), 255));
    int dot = 11;
    for (int k = 0; k < 4; k++) dot += static_cast<signed char>(x >> 8 * k) * static_cast<signed char>(y >> 8 * k);
    r[34] = dot;
    r[35] = (static_cast<long long>(sx) + sy) >> 1;
}

__global__ void conversions(const float* in, long long* out, int n) {
    int i = threadIdx.x;
    if (i < n) {
        float x = in[i];
        long long* r = out + i * 6;
        r[0] = __float2int_rz(x);
        r[1] = __float2int_ru(x);
        r[2] = __float2int_rd(x);
        r[3] = __float2uint_rn(x);
        r[4] = __float2ll_rz(x);
        r[5] = static_cast<long long>(__float2ull_rz(x));
    }
}

int main() {
    std::vector<unsigned> a, b;
    Random random(16);
    const unsigned edges[] = {0, 1, 2, 31, 32, 127, 128, 255, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0xfffffffe};
    for (unsigned x : edges) {
        for (unsigned y : edges) {
            a.push_back(x);
            b.push_back(y);
        }
    }
    for (int i = 0; i < 3000; i++) {
        a.push_back(static_cast<unsigned>(random.next()) >> random.below(32));
        b.push_back(static_cast<unsigned>(random.next()) >> random.below(32));
    }
    int n = static_cast<int>(a.size());
    DeviceArray<unsigned> da(a), db(b);
    DeviceArray<long long> dout(a.size() * RESULTS);
    on_device<<<blocks_for(a.size(), 128), 128>>>(da.get(), db.get(), dout.get(), n);
    CHECK(cudaGetLastError());
    std::vector<long long> out = dout.download();
    for (int i = 0; i < n; i++) {
        // Conversion of a double that rounds up to 2^63 is not defined on the host.
        long long wanted[RESULTS];
        on_host(a[i], b[i], wanted);
        for (int k = 0; k < RESULTS; k++) {
            if (k == 32 && a[i] >= 0x7fffffff && a[i] < 0x80000000) continue;
            if (out[i * RESULTS + k] != wanted[k]) {
                printf("operation %d of %08x and %08x: %lld, expected %lld\n", k, a[i], b[i], out[i * RESULTS + k], wanted[k]);
                return 1;
            }
        }
    }
    printf("integers: %d pairs, %d operations each, checksum %016llx\n", n, RESULTS, (unsigned long long)checksum(out));

    // Out of range saturates, NaN gives 0 (or the smallest 64-bit number).
    std::vector<float> floats = {0.5f, -0.5f, 2.5f, 3.5f, -7.9f, 1e20f, -1e20f, 2147483648.0f, INFINITY, -INFINITY};
    DeviceArray<float> dfloats(floats);
    DeviceArray<long long> dconverted(floats.size() * 6);
    conversions<<<1, 32>>>(dfloats.get(), dconverted.get(), static_cast<int>(floats.size()));
    CHECK(cudaGetLastError());
    std::vector<long long> converted = dconverted.download();
    for (size_t i = 0; i < floats.size(); i++) {
        printf("%12g:", floats[i]);
        for (int k = 0; k < 6; k++) printf(" %lld", converted[i * 6 + k]);
        printf("\n");
    }
    EXPECT(converted[5 * 6] == INT_MAX && converted[6 * 6] == INT_MIN && converted[5 * 6 + 4] == LLONG_MAX);
    EXPECT(converted[3 * 6 + 3] == 4 && converted[2 * 6 + 3] == 2 && converted[6 * 6 + 5] == 0);
    return 0;
}
