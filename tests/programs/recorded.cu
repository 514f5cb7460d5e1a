// Long chains of arithmetic on generated operands of all magnitudes, whose checksums were recorded
// on an H200: 128-bit integers, narrow and wide integers with the video instructions, both float
// widths in every rounding, and the 16- and 8-bit floats. None uses the approximate functions, so
// every bit is defined.
#include "check.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

typedef unsigned long long u64;

// Operands: a generator whose values have leading zeros of varying number.
struct Source {
    u64 state;
    __device__ u64 next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state * 0x9e3779b97f4a7c15ull >> (state >> 60) * 3;
    }
    __device__ float single() {
        float magnitude = __int_as_float(static_cast<int>((next() & 0x3fffffff) + 0x20000000));
        return next() & 1 ? magnitude : -magnitude;
    }
    __device__ double wide() {
        double magnitude = __longlong_as_double(static_cast<long long>((next() & 0x07ffffffffffffffull) + 0x3c00000000000000ull));
        return next() & 1 ? magnitude : -magnitude;
    }
    __device__ __half half() { return __ushort_as_half(static_cast<unsigned short>(next() & 0xbfff)); }
    __device__ __nv_bfloat16 bfloat() {
        return __ushort_as_bfloat16(static_cast<unsigned short>((next() & 0x8fff) | 0x3000));
    }
};

// A checksum. All NaNs count alike: their bits are nobody's business.
struct Sum {
    u64 value;
    __device__ void add(u64 bits) { value = value * 31 + bits; }
    __device__ void add(float x) { add(static_cast<u64>(isnan(x) ? 0x7fffffffu : __float_as_uint(x))); }
    __device__ void add(double x) { add(isnan(x) ? ~0ull : static_cast<u64>(__double_as_longlong(x))); }
    __device__ void add(__half x) { add(static_cast<u64>(__hisnan(x) ? 0x7fff : __half_as_ushort(x))); }
    __device__ void add(__nv_bfloat16 x) { add(static_cast<u64>(__hisnan(x) ? 0x7fff : __bfloat16_as_ushort(x))); }
};

__global__ void int128(u64* out) {
    Source s{threadIdx.x * 77777ull + 12345};
    Sum sum{0};
    for (int i = 0; i < 200; i++) {
        unsigned __int128 c = static_cast<unsigned __int128>(s.next()) << 64 | s.next();
        unsigned __int128 d = (static_cast<unsigned __int128>(s.next()) << (s.next() & 63)) + 1;
        __int128 a = static_cast<__int128>(c), b = static_cast<__int128>(d);
        unsigned right = s.next() & 127, left = s.next() & 127;
        unsigned __int128 results[] = {c + d, c - d, c * d, c / d, c % d, c >> right, c << left,
            static_cast<unsigned __int128>(a / b), static_cast<unsigned __int128>(a % b), static_cast<unsigned __int128>(a >> left)};
        for (unsigned __int128 result : results) {
            sum.add(static_cast<u64>(result));
            sum.add(static_cast<u64>(result >> 64));
        }
        sum.add(static_cast<u64>((a < b) + (c < d) * 2));
    }
    out[threadIdx.x] = sum.value;
}

__global__ void integers(u64* out) {
    Source s{threadIdx.x * 999ull + 1};
    Sum sum{0};
    for (int i = 0; i < 500; i++) {
        u64 c = s.next(), d = s.next() | 1;
        long long a = static_cast<long long>(s.next()), b = static_cast<long long>(s.next() | 1);
        int e = static_cast<int>(s.next()), f = static_cast<int>(s.next() | 1);
        unsigned x = static_cast<unsigned>(s.next()), y = static_cast<unsigned>(s.next() | 1);
        short p = static_cast<short>(s.next()), q = static_cast<short>(s.next() | 1);
        signed char u = static_cast<signed char>(s.next()), v = static_cast<signed char>(s.next() | 1);
        u64 results[] = {u64(a / b), u64(a % b), c / d, c % d, u64(e / f), u64(e % f), x / y, x % y, u64(p / q), u64(p % q), u64(u / v),
            u64(u % v), u64(__mulhi(e, f)), __umul64hi(c, d), u64(__mul64hi(a, b)), u64(__mul24(e, f)), __umul24(x, y), __sad(e, f, x),
            u64(__hadd(e, f)), u64(__rhadd(e, f)), __uhadd(x, y), u64(__ffs(e)), u64(__clz(e)), u64(__popcll(c)), __brev(x),
            __funnelshift_rc(x, y, e), __funnelshift_lc(x, y, e & 63), u64(a >> (x & 63)), c << (y & 63), __byte_perm(x, y, e),
            u64(llabs(a)), u64(min(a, b)), max(c, d), __vaddss4(x, y), __vsubus2(x, y), __vavgs4(x, y), __vcmpgts2(x, y), __vminu4(x, y),
            __vabs4(x), __vneg2(x), __vsads4(x, y), __vsetltu4(x, y), __viaddmin_s16x2_relu(x, y, e)};
        for (u64 result : results) sum.add(result);
    }
    out[threadIdx.x] = sum.value;
}

__global__ void floats(u64* out) {
    Source s{threadIdx.x * 31ull + 7};
    Sum sum{0};
    for (int i = 0; i < 500; i++) {
        float a = s.single(), b = s.single(), c = s.single();
        double d = s.wide(), e = s.wide(), f = s.wide();
        u64 n = s.next();
        float singles[] = {a + b, a * b, a / b, sqrtf(a), fmaf(a, b, c), __fadd_rz(a, b), __fmul_ru(a, b), __fmaf_rd(a, b, c),
            __fdiv_rz(a, b), __fsqrt_ru(fabsf(a)), __frcp_rd(a), fminf(a, b), fmaxf(a, c), truncf(a), rintf(b), roundf(c), floorf(a),
            ceilf(b), copysignf(a, b), fdimf(a, b), ldexpf(a, 3), nextafterf(a, b), remainderf(a, b), fmodf(a, b), static_cast<float>(d),
            __double2float_rd(d), __int2float_rz(static_cast<int>(n)), __ull2float_ru(n), static_cast<float>(static_cast<long long>(n))};
        double doubles[] = {d + e, d * e, d / e, sqrt(d), fma(d, e, f), __dadd_rz(d, e), __dmul_ru(d, e), __fma_rd(d, e, f),
            __ddiv_rz(d, e), __dsqrt_ru(fabs(d)), __drcp_rd(d), fmin(d, e), trunc(d), rint(e), round(f), static_cast<double>(a),
            static_cast<double>(n), static_cast<double>(static_cast<long long>(n)), __ll2double_rz(static_cast<long long>(n)), fmod(d, e),
            remainder(d, e)};
        u64 numbers[] = {u64(static_cast<int>(a)), static_cast<unsigned>(b), u64(static_cast<long long>(d)), static_cast<u64>(e),
            u64(static_cast<short>(c)), u64(__float2int_rn(a)), __float2uint_ru(b), u64(__double2ll_rd(d)), __double2uint_rz(e),
            u64(__float2ll_rn(b)), u64(ilogbf(a)), u64(ilogb(d)), u64(lrintf(a)), u64(llround(d)), u64(a < b), u64(d >= e)};
        for (float x : singles) sum.add(x);
        for (double x : doubles) sum.add(x);
        for (u64 x : numbers) sum.add(x);
    }
    out[threadIdx.x] = sum.value;
}

__global__ void narrow_floats(u64* out) {
    Source s{threadIdx.x * 131ull + 7};
    Sum sum{0};
    for (int i = 0; i < 300; i++) {
        __half a = s.half(), b = s.half(), c = s.half();
        __half halves[] = {a + b, a - b, a * b, __hfma(a, b, c), __hfma_relu(a, b, c), __hfma_sat(a, b, c), __hadd_sat(a, b),
            __hmin(a, b), __hmax(a, c), __hmin_nan(a, b), __hneg(a), __habs(b), hfloor(a), hrint(b), htrunc(c), hceil(a),
            __int2half_rn(static_cast<int>(s.next())), __float2half_rz(s.single()), __float2half_ru(__half2float(a) * 1.0001f),
            __double2half(s.wide()), __ull2half_rd(s.next() >> 40)};
        for (__half x : halves) sum.add(x);
        __nv_bfloat16 x = s.bfloat(), y = s.bfloat(), z = s.bfloat();
        __nv_bfloat16 bfloats[] = {x + y, x * y, x - y, __hfma(x, y, z), __hmin(x, y), __hmax(x, z), __float2bfloat16_rd(s.single()),
            __double2bfloat16(s.wide()), __int2bfloat16_rn(static_cast<int>(s.next()))};
        for (__nv_bfloat16 v : bfloats) sum.add(v);
        u64 numbers[] = {u64(__half2int_rn(a)), __half2uint_rd(b), u64(__half2short_rz(c)), u64(__hlt(a, b)), u64(__heq(b, c)),
            u64(__hgeu(a, c)), u64(__hisnan(a)), u64(__bfloat162int_rn(x)), u64(__half2ll_ru(a)), u64(__hltu(x, y))};
        for (u64 n : numbers) sum.add(n);
        __half2 pair = __hmul2(__halves2half2(a, b), __halves2half2(b, c));
        __half2 turned = __hcmadd(pair, __halves2half2(c, a), pair);
        for (__half h : {pair.x, pair.y, turned.x, turned.y}) sum.add(h);
        sum.add(static_cast<u64>(__hbltu2(pair, turned) + __hbeq2(pair, pair) * 2));
        __nv_fp8_e4m3 small;
        __nv_fp8_e5m2 rough;
        small.__x = static_cast<unsigned char>(s.next());
        rough.__x = static_cast<unsigned char>(s.next());
        sum.add(static_cast<__half>(small));
        sum.add(static_cast<__half>(rough));
        sum.add(static_cast<u64>(__nv_fp8_e4m3(s.single()).__x + __nv_fp8_e5m2(s.single()).__x * 256));
    }
    out[threadIdx.x] = sum.value;
}

constexpr int THREADS = 64;

static u64 run(const char* name, void (*kernel)(u64*)) {
    u64* out;
    CHECK(cudaMalloc(&out, THREADS * sizeof(u64)));
    kernel<<<1, THREADS>>>(out);
    CHECK(cudaGetLastError());
    u64 sums[THREADS], all = 0;
    CHECK(cudaMemcpy(sums, out, sizeof sums, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(out));
    for (u64 sum : sums) all = all * 1000003 + sum;
    printf("%-13s %016llx\n", name, all);
    return all;
}

int main() {
    u64 sums[] = {run("128-bit", int128), run("integers", integers), run("floats", floats), run("narrow floats", narrow_floats)};
    // On an H200, driver 580.159.
    const u64 recorded[] = {0x882fd3f4d57d5f9c, 0x456f50d4ab3a2cfe, 0x7cfcd1736a4cb0b5, 0xb6181a9d4ad9870f};
    for (int i = 0; i < 4; i++) EXPECT(sums[i] == recorded[i]);
    return 0;
}
