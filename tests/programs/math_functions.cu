// Mathematical functions against the host. The bounds are those of CUDA's documentation, and one
// unit more where a function is built on approximations: the documentation tells what NVIDIA's
// hardware makes of them. Prints the bound that held, not the error, which may differ between
// devices.
#include "check.h"

#include <cstring>

// How many representable numbers lie between a and b.
static double ulps(float a, double b) {
    if (std::isnan(a) && std::isnan(b)) return 0;
    if (static_cast<double>(a) == b) return 0;
    float nearest = static_cast<float>(b);
    if (std::isinf(nearest) || std::isinf(a)) return nearest == a ? 0 : 1e30;
    int exponent;
    std::frexp(nearest, &exponent);
    return std::fabs(a - b) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

static double ulps(double a, long double b) {
    if (std::isnan(a) && std::isnan(b)) return 0;
    if (static_cast<long double>(a) == b) return 0;
    double nearest = static_cast<double>(b);
    if (std::isinf(nearest) || std::isinf(a)) return nearest == a ? 0 : 1e30;
    int exponent;
    std::frexp(nearest, &exponent);
    return static_cast<double>(std::fabs(a - b) / std::ldexp(1.0L, std::max(exponent, -1021) - 53));
}

template <typename T, typename F>
__global__ void apply(F function, const T* x, const T* y, T* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = function(x[i], y[i]);
    }
}

// A kind of input: its range, and whether special values are part of it.
struct Range {
    double low, high;
    bool specials;
};

template <typename T, typename Wide, typename F, typename Reference>
static void check(const char* name, F function, Reference reference, Range range, double bound, bool absolute = false) {
    std::vector<T> x, y;
    Random random(13);
    for (int i = 0; i < 2000; i++) {
        double u = static_cast<double>(random.next() >> 11) * 0x1p-53, v = static_cast<double>(random.next() >> 11) * 0x1p-53;
        x.push_back(static_cast<T>(range.low + u * (range.high - range.low)));
        y.push_back(static_cast<T>(range.low + v * (range.high - range.low)));
    }
    if (range.specials) {
        for (T a : {T(0), T(-0.0), T(1), T(-1), T(INFINITY), T(-INFINITY), T(NAN)}) {
            for (T b : {T(0), T(1), T(2), T(-3), T(0.5), T(INFINITY), T(NAN)}) {
                x.push_back(a);
                y.push_back(b);
            }
        }
    }
    int n = static_cast<int>(x.size());
    DeviceArray<T> dx(x), dy(y), dout(x.size());
    apply<<<blocks_for(x.size(), 128), 128>>>(function, dx.get(), dy.get(), dout.get(), n);
    CHECK(cudaGetLastError());
    std::vector<T> out = dout.download();
    for (int i = 0; i < n; i++) {
        Wide wanted = reference(static_cast<Wide>(x[i]), static_cast<Wide>(y[i]));
        double error = absolute ? std::fabs(static_cast<double>(out[i] - wanted)) : ulps(out[i], wanted);
        if (!(error <= bound)) {
            printf("%s(%.17g, %.17g) = %.17g, expected %.17g: error %g\n", name, (double)x[i], (double)y[i], (double)out[i],
                   (double)wanted, error);
            exit(1);
        }
    }
    printf("%-12s within %g\n", name, bound);
}

#define SINGLE(name, code, reference, range, bound)                                                                        \
    check<float, double>(                                                                                                  \
        name, [] __device__(float x, float y) -> float { (void)y; return code; },                                          \
        [](double x, double y) -> double { (void)y; return reference; }, range, bound)
#define SINGLE_ABSOLUTE(name, code, reference, range, bound)                                                               \
    check<float, double>(                                                                                                  \
        name, [] __device__(float x, float y) -> float { (void)y; return code; },                                          \
        [](double x, double y) -> double { (void)y; return reference; }, range, bound, true)
#define DOUBLE(name, code, reference, range, bound)                                                                        \
    check<double, long double>(                                                                                            \
        name, [] __device__(double x, double y) -> double { (void)y; return code; },                                       \
        [](long double x, long double y) -> long double { (void)y; return reference; }, range, bound)

int main() {
    const Range any = {-20, 20, true}, positive = {0, 1000, true}, unit = {-1, 1, true}, wide = {-1000, 1000, false};

    // Correctly rounded.
    SINGLE("add", x + y, x + y, any, 0.5);
    SINGLE("divide", x / y, x / y, any, 0.5);
    SINGLE("reciprocal", 1.0f / x, 1 / x, any, 0.5);
    SINGLE("sqrt", sqrtf(x), std::sqrt(x), positive, 0.5);
    SINGLE("fma", fmaf(x, y, 1.5f), std::fma(x, y, 1.5), wide, 0.5);
    DOUBLE("divide", x / y, x / y, any, 0.5);
    DOUBLE("sqrt", sqrt(x), std::sqrt(x), positive, 0.5);

    // Exact.
    SINGLE("floor", floorf(x), std::floor(x), any, 0);
    SINGLE("ceil", ceilf(x), std::ceil(x), any, 0);
    SINGLE("trunc", truncf(x), std::trunc(x), any, 0);
    SINGLE("rint", rintf(x), std::nearbyint(x), any, 0);
    SINGLE("round", roundf(x), std::round(x), any, 0);
    SINGLE("fmod", fmodf(x, y), std::fmod(x, y), wide, 0);
    SINGLE("remainder", remainderf(x, y), std::remainder(x, y), wide, 0);
    SINGLE("fmin", fminf(x, y), std::fmin(x, y), any, 0);
    SINGLE("fmax", fmaxf(x, y), std::fmax(x, y), any, 0);
    SINGLE("copysign", copysignf(x, y), std::copysign(x, y), wide, 0);
    SINGLE("ldexp", ldexpf(x, 5), std::ldexp(x, 5), any, 0);
    DOUBLE("rint", rint(x), std::nearbyint(x), any, 0);
    DOUBLE("fmod", fmod(x, y), std::fmod(x, y), wide, 0);

    // Single precision: units in the last place, one more than the CUDA programming guide tells.
    SINGLE("rsqrt", rsqrtf(x), 1 / std::sqrt(x), positive, 3);
    SINGLE("cbrt", cbrtf(x), std::cbrt(x), any, 2);
    SINGLE("exp", expf(x), std::exp(x), any, 3);
    SINGLE("exp2", exp2f(x), std::exp2(x), any, 3);
    SINGLE("exp10", exp10f(x), std::pow(10.0, x), any, 3);
    SINGLE("expm1", expm1f(x), std::expm1(x), any, 2);
    SINGLE("log", logf(x), std::log(x), positive, 2);
    SINGLE("log2", log2f(x), std::log2(x), positive, 2);
    SINGLE("log10", log10f(x), std::log10(x), positive, 3);
    SINGLE("log1p", log1pf(x), std::log1p(x), positive, 2);
    SINGLE("sin", sinf(x), std::sin(x), any, 3);
    SINGLE("cos", cosf(x), std::cos(x), any, 3);
    SINGLE("tan", tanf(x), std::tan(x), any, 5);
    SINGLE("sin, large", sinf(x * 1e6f), std::sin(static_cast<double>(static_cast<float>(x) * 1e6f)), wide, 3);
    SINGLE("asin", asinf(x), std::asin(x), unit, 3);
    SINGLE("acos", acosf(x), std::acos(x), unit, 3);
    SINGLE("atan", atanf(x), std::atan(x), any, 3);
    SINGLE("atan2", atan2f(x, y), std::atan2(x, y), wide, 4);
    SINGLE("sinh", sinhf(x), std::sinh(x), any, 4);
    SINGLE("cosh", coshf(x), std::cosh(x), any, 3);
    SINGLE("tanh", tanhf(x), std::tanh(x), any, 3);
    SINGLE("asinh", asinhf(x), std::asinh(x), any, 4);
    SINGLE("atanh", atanhf(x), std::atanh(x), unit, 4);
    SINGLE("pow", powf(fabsf(x), y), std::pow(std::fabs(x), y), unit, 5);
    SINGLE("hypot", hypotf(x, y), std::hypot(x, y), wide, 4);
    SINGLE("erf", erff(x), std::erf(x), any, 3);
    SINGLE("erfc", erfcf(x), std::erfc(x), unit, 5);
    SINGLE("tgamma", tgammaf(x), std::tgamma(x), (Range{0.1, 20, false}), 6);

    // Intrinsics: bounds from the same guide.
    SINGLE_ABSOLUTE("__sinf", __sinf(x), std::sin(x), (Range{-3.14159, 3.14159, false}), 0x1p-21);
    SINGLE_ABSOLUTE("__cosf", __cosf(x), std::cos(x), (Range{-3.14159, 3.14159, false}), 0x1p-21);
    SINGLE("__expf", __expf(x), std::exp(x), (Range{-10, 10, false}), 14);
    SINGLE_ABSOLUTE("__log2f", __log2f(x), std::log2(x), (Range{0.5, 2, false}), 0x1p-21);
    SINGLE("__fdividef", __fdividef(x, y), x / y, (Range{1, 1000, false}), 2);
    SINGLE("__frcp_rz", __frcp_rz(x), 1 / x, wide, 1);

    // Double precision, in the same way.
    DOUBLE("exp", exp(x), std::exp(x), any, 2);
    DOUBLE("log", log(x), std::log(x), positive, 2);
    DOUBLE("sin", sin(x), std::sin(x), any, 3);
    DOUBLE("cos", cos(x), std::cos(x), any, 3);
    DOUBLE("tan", tan(x), std::tan(x), any, 3);
    DOUBLE("atan2", atan2(x, y), std::atan2(x, y), wide, 3);
    DOUBLE("tanh", tanh(x), std::tanh(x), any, 2);
    DOUBLE("pow", pow(fabs(x), y), std::pow(std::fabs(x), y), unit, 3);
    DOUBLE("cbrt", cbrt(x), std::cbrt(x), any, 2);
    DOUBLE("erf", erf(x), std::erf(x), any, 3);
    DOUBLE("rsqrt", rsqrt(x), 1 / std::sqrt(x), positive, 2);
    return 0;
}
