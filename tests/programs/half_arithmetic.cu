// half and bfloat16: conversions in every rounding, arithmetic one by one and in pairs. Every one
// of the 65,536 bit patterns goes through the conversions.
#include "check.h"

#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__global__ void convert_half(const unsigned short* bits, float* wide, unsigned short* back, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        wide[i] = __half2float(__ushort_as_half(bits[i]));
        back[i] = __half_as_ushort(__float2half_rn(wide[i]));
    }
}

__global__ void convert_bfloat16(const unsigned short* bits, float* wide, unsigned short* back, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        wide[i] = __bfloat162float(__ushort_as_bfloat16(bits[i]));
        back[i] = __bfloat16_as_ushort(__float2bfloat16_rn(wide[i]));
    }
}

__global__ void half_operations(const float* a, const float* b, unsigned short* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    __half x = __float2half(a[i]), y = __float2half(b[i]);
    __half2 pair = __hfma2(__halves2half2(x, y), __halves2half2(y, x), __halves2half2(y, y));
    __half results[8] = {__hadd(x, y),    __hsub(x, y),       __hmul(x, y),        __hfma(x, y, x),
                         __low2half(pair), __high2half(pair), __hneg(__habs(x)), __hlt(x, y) ? x : y};
    for (int k = 0; k < 8; k++) {
        out[i * 8 + k] = __half_as_ushort(results[k]);
    }
}

__global__ void bfloat16_operations(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    __nv_bfloat16 x = __float2bfloat16(a[i]), y = __float2bfloat16(b[i]);
    out[i * 4] = __bfloat162float(__hadd(x, y));
    out[i * 4 + 1] = __bfloat162float(__hmul(x, y));
    out[i * 4 + 2] = __bfloat162float(__hfma(x, y, y));
    out[i * 4 + 3] = __bfloat162float(__hmax(x, y));
}

__global__ void round_all_ways(const float* in, unsigned short* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i * 4] = __half_as_ushort(__float2half_rn(in[i]));
        out[i * 4 + 1] = __half_as_ushort(__float2half_rz(in[i]));
        out[i * 4 + 2] = __half_as_ushort(__float2half_ru(in[i]));
        out[i * 4 + 3] = __half_as_ushort(__float2half_rd(in[i]));
    }
}

// The value of a half, computed without any hardware conversion.
static float half_value(unsigned short bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float magnitude = exponent == 31 ? (mantissa ? NAN : INFINITY)
                      : exponent     ? std::ldexp(1024.0f + mantissa, exponent - 25)
                                     : std::ldexp(static_cast<float>(mantissa), -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

// The nearest half to a double, ties to even; `down` and `up` are its neighbours towards minus and
// plus infinity.
static unsigned short nearest_half(double value) {
    unsigned short best = 0;
    double best_distance = INFINITY;
    for (unsigned bits = 0; bits < 0x7c00; bits++) {
        double distance = std::fabs(std::fabs(value) - half_value(static_cast<unsigned short>(bits)));
        if (distance < best_distance || (distance == best_distance && bits % 2 == 0)) {
            best = static_cast<unsigned short>(bits);
            best_distance = distance;
        }
    }
    if (std::fabs(value) >= 65520) best = 0x7c00;
    return static_cast<unsigned short>(best | (std::signbit(value) ? 0x8000 : 0));
}

static float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static float round_to_bfloat16(double value) {
    // Both steps are exact here: the operands have 8 significant bits, so sums and products of them
    // fit a double, and a float rounded to odd keeps what the second rounding needs.
    float wide = static_cast<float>(value);
    uint32_t bits;
    memcpy(&bits, &wide, sizeof(bits));
    if (static_cast<double>(wide) != value) {
        if (std::fabs(static_cast<double>(wide)) > std::fabs(value)) bits--;
        bits |= 1;
    }
    bits += 0x7fff + (bits >> 16 & 1);
    return bits_to_float(bits & 0xffff0000u);
}

int main() {
    const int all = 65536;
    std::vector<unsigned short> patterns(all);
    for (int i = 0; i < all; i++) patterns[i] = static_cast<unsigned short>(i);
    DeviceArray<unsigned short> dpatterns(patterns), dback(all);
    DeviceArray<float> dwide(all);
    convert_half<<<256, 256>>>(dpatterns.get(), dwide.get(), dback.get(), all);
    std::vector<float> wide = dwide.download();
    std::vector<unsigned short> back = dback.download();
    for (int i = 0; i < all; i++) {
        float wanted = half_value(patterns[i]);
        if (std::isnan(wanted)) {
            EXPECT(std::isnan(wide[i]) && (back[i] & 0x7c00) == 0x7c00 && (back[i] & 0x3ff) != 0);
        } else {
            EXPECT(wide[i] == wanted && back[i] == patterns[i]);
        }
    }
    printf("half to float and back: all %d patterns right\n", all);
    convert_bfloat16<<<256, 256>>>(dpatterns.get(), dwide.get(), dback.get(), all);
    wide = dwide.download();
    back = dback.download();
    for (int i = 0; i < all; i++) {
        float wanted = bits_to_float(static_cast<uint32_t>(i) << 16);
        if (std::isnan(wanted)) {
            EXPECT(std::isnan(wide[i]) && (back[i] & 0x7f80) == 0x7f80 && (back[i] & 0x7f) != 0);
        } else {
            EXPECT(wide[i] == wanted && back[i] == patterns[i]);
        }
    }
    printf("bfloat16 to float and back: all %d patterns right\n", all);

    const int n = 400;
    std::vector<float> a(n), b(n);
    Random random(12);
    for (int i = 0; i < n; i++) {
        // Already halves, so that the operations alone round. A few give subnormal results, a few
        // overflow.
        float scale = i % 10 == 0 ? 0x1p-12f : i % 10 == 1 ? 200.0f : 1.0f;
        a[i] = half_value(nearest_half((random.unit() - 0.5) * 4 * scale));
        b[i] = half_value(nearest_half((random.unit() - 0.5) * 4 * scale));
    }
    DeviceArray<float> da(a), db(b);
    DeviceArray<unsigned short> dhalves(n * 8);
    half_operations<<<blocks_for(n, 64), 64>>>(da.get(), db.get(), dhalves.get(), n);
    CHECK(cudaGetLastError());
    std::vector<unsigned short> halves = dhalves.download();
    for (int i = 0; i < n; i++) {
        double x = a[i], y = b[i];
        double wanted[8] = {x + y, x - y, x * y, x * y + x, x * y + y, y * x + y, -std::fabs(x), x < y ? x : y};
        for (int k = 0; k < 8; k++) {
            EXPECT(half_value(halves[i * 8 + k]) == half_value(nearest_half(wanted[k])));
        }
    }
    printf("half arithmetic: right\n");

    for (int i = 0; i < n; i++) {
        a[i] = round_to_bfloat16(a[i]);
        b[i] = round_to_bfloat16(b[i]);
    }
    da.upload(a);
    db.upload(b);
    DeviceArray<float> dbfloats(n * 4);
    bfloat16_operations<<<blocks_for(n, 64), 64>>>(da.get(), db.get(), dbfloats.get(), n);
    CHECK(cudaGetLastError());
    std::vector<float> bfloats = dbfloats.download();
    for (int i = 0; i < n; i++) {
        double x = a[i], y = b[i];
        EXPECT(bfloats[i * 4] == round_to_bfloat16(x + y));
        EXPECT(bfloats[i * 4 + 1] == round_to_bfloat16(x * y));
        EXPECT(bfloats[i * 4 + 2] == round_to_bfloat16(x * y + y));
        EXPECT(bfloats[i * 4 + 3] == std::fmax(a[i], b[i]));
    }
    printf("bfloat16 arithmetic: right\n");

    std::vector<float> edges = {1.0f, 1.0004f, 1.0005f, 1.0015f, -1.0004f, 65504.0f, 65519.0f, 65520.0f, 70000.0f, -70000.0f,
                                6e-8f, 2.9e-8f, 3e-8f, 1e-9f, -1e-9f, 0.0f, -0.0f, 2048.5f, 2049.0f, 0.1f};
    int count = static_cast<int>(edges.size());
    DeviceArray<float> dedges(edges);
    DeviceArray<unsigned short> drounded(edges.size() * 4);
    round_all_ways<<<1, 32>>>(dedges.get(), drounded.get(), count);
    std::vector<unsigned short> rounded = drounded.download();
    for (int i = 0; i < count; i++) {
        printf("%-12g rn %04x rz %04x ru %04x rd %04x\n", edges[i], rounded[i * 4], rounded[i * 4 + 1], rounded[i * 4 + 2],
               rounded[i * 4 + 3]);
        float rn = half_value(rounded[i * 4]), rz = half_value(rounded[i * 4 + 1]);
        float ru = half_value(rounded[i * 4 + 2]), rd = half_value(rounded[i * 4 + 3]);
        EXPECT(rounded[i * 4] == nearest_half(edges[i]));
        EXPECT(rd <= edges[i] && edges[i] <= ru && std::fabs(rz) <= std::fabs(edges[i]) && (rn == ru || rn == rd));
    }
    return 0;
}
