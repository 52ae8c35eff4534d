// The functions that rows of the op table are made of.
//
// C: the dtype arithmetic is carried out in; R: the type it is computed in (small integers in int). REAL or INTEGER
// says which functions there are.

namespace rl {

#if REAL || INTEGER
__device__ inline R lit(double v) { return (R)v; }
#endif
#define ZERO ((R)0)
#define ONE ((R)1)
#define let const auto

template <class T> __device__ inline T select(bool mask, T a, T b) { return mask ? a : b; }
template <class T> __device__ inline bool lt(T a, T b) { return a < b; }
template <class T> __device__ inline bool le(T a, T b) { return a <= b; }
template <class T> __device__ inline bool gt(T a, T b) { return b < a; }
template <class T> __device__ inline bool ge(T a, T b) { return b <= a; }
template <class T> __device__ inline bool eq(T a, T b) { return a == b; }
template <class T> __device__ inline bool ne(T a, T b) { return !(a == b); }
__device__ inline bool both(bool a, bool b) { return a && b; }
template <class T> __device__ inline T sign(T x) { return (T)0 < x ? (T)1 : x < (T)0 ? (T)-1 : (T)0; }
template <class T> __device__ inline T max(T a, T b) { return (a > b || a != a) ? a : b; }
template <class T> __device__ inline T min(T a, T b) { return (a < b || a != a) ? a : b; }

#if REAL
#define FUNCTION(name, f32_name, f64_name)                                \
    __device__ inline float name(float x) { return ::f32_name(x); }       \
    __device__ inline double name(double x) { return ::f64_name(x); }
FUNCTION(abs, fabsf, fabs)
FUNCTION(exp, expf, exp)
FUNCTION(exp2, exp2f, exp2)
FUNCTION(expm1, expm1f, expm1)
FUNCTION(log, logf, log)
FUNCTION(log2, log2f, log2)
FUNCTION(log10, log10f, log10)
FUNCTION(log1p, log1pf, log1p)
FUNCTION(sqrt, sqrtf, sqrt)
FUNCTION(sin, sinf, sin)
FUNCTION(cos, cosf, cos)
FUNCTION(tan, tanf, tan)
FUNCTION(asin, asinf, asin)
FUNCTION(acos, acosf, acos)
FUNCTION(atan, atanf, atan)
FUNCTION(sinh, sinhf, sinh)
FUNCTION(cosh, coshf, cosh)
FUNCTION(tanh, tanhf, tanh)
FUNCTION(asinh, asinhf, asinh)
FUNCTION(acosh, acoshf, acosh)
FUNCTION(atanh, atanhf, atanh)
FUNCTION(erf, erff, erf)
FUNCTION(erfc, erfcf, erfc)
FUNCTION(erfinv, erfinvf, erfinv)
FUNCTION(lgamma, lgammaf, lgamma)
FUNCTION(floor, floorf, floor)
FUNCTION(ceil, ceilf, ceil)
FUNCTION(round, rintf, rint)
FUNCTION(trunc, truncf, trunc)
// Computes the upper tail 1 - cdf(|x|) as a power of two: as accurate as numbers near one, and much faster than `erff`.
// The polynomial's error times the power is below 1e-8 everywhere.
__device__ inline float normal_cdf(float x) {
    const float t = fabsf(x);
    float p = -2.8349007e-06f;
    p = fmaf(p, t, 3.9377552e-05f);
    p = fmaf(p, t, -1.861796e-04f);
    p = fmaf(p, t, -1.3693783e-04f);
    p = fmaf(p, t, 7.063422e-03f);
    p = fmaf(p, t, -5.249618e-02f);
    p = fmaf(p, t, -4.592082e-01f);
    p = fmaf(p, t, -1.1511052f);
    const float beyond = exp2_fast(fmaf(p, t, -1.0f));
    return x < 0 ? beyond : 1 - beyond;
}
__device__ inline double normal_cdf(double x) { return ::normcdf(x); }
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline double sigmoid(double x) { return 1.0 / (1.0 + ::exp(-x)); }
__device__ inline float atan2(float y, float x) { return ::atan2f(y, x); }
__device__ inline double atan2(double y, double x) { return ::atan2(y, x); }
__device__ inline float copysign(float a, float b) { return ::copysignf(a, b); }
__device__ inline double copysign(double a, double b) { return ::copysign(a, b); }
__device__ inline float step_bits(float x, float n) { return __uint_as_float(__float_as_uint(x) + (u32)(i32)n); }
__device__ inline double step_bits(double x, double n) { return __longlong_as_double(__double_as_longlong(x) + (i64)n); }
__device__ inline float pow(float a, float b) { return ::powf(a, b); }
__device__ inline double pow(double a, double b) { return ::pow(a, b); }
__device__ inline float fmod(float a, float b) { return ::fmodf(a, b); }
__device__ inline double fmod(double a, double b) { return ::fmod(a, b); }
__device__ inline R trunc_div(R a, R b) { return trunc(a / b); }
__device__ inline R remainder(R a, R b) {
    R rest = fmod(a, b);
    return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}
__device__ inline R floor_div(R a, R b) {
    // The remainder is exact, so the remaining quotient is an integer up to one rounding error.
    if (b == 0) return a / b;
    R rest = fmod(a, b);
    R exact = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) exact -= 1;
    if (exact == 0) return copysign((R)0, a / b);
    R whole = floor(exact);
    return exact - whole > (R)0.5 ? whole + 1 : whole;
}

// Derivatives of the logarithm of the gamma function, in double.
__device__ inline double digamma64(double x) {
    const double PI = 3.141592653589793;
    if (x == 0) return ::copysign(INFINITY, -x);
    double reflected = 0;
    if (x < 0) {
        if (x == ::trunc(x)) return NAN_DOUBLE;
        // The tangent has period one in x and is most accurate near zero.
        reflected = -PI / ::tan(PI * (x - ::rint(x)));
        x = 1 - x;
    }
    // The sum of 1 / (x + k), as one fraction. Single precision needs fewer terms: the first that is left out is 1e-11.
    const bool single = sizeof(R) == 4;
    double above = 0, below = 1;
    while (x < (single ? 6 : 10)) {
        above = above * x + below;
        below *= x;
        x += 1;
    }
    double sum = -above / below;
    if (single) {
        double inverse = 1 / x, z = inverse * inverse;
        double series = z * (1.0 / 12 + z * (-1.0 / 120 + z * (1.0 / 252 + z * (-1.0 / 240 + z / 132))));
        return reflected + sum + ::log(x) - 0.5 * inverse - series;
    }
    double z = 1 / (x * x);
    double series = z * (1.0 / 12 + z * (-1.0 / 120 + z * (1.0 / 252 + z * (-1.0 / 240 + z * (1.0 / 132 + z * (-691.0 / 32760 + z / 12))))));
    return reflected + sum + ::log(x) - 0.5 / x - (isinf(x) ? 0 : series);
}

// The sum of (q + k)^-s over k >= 0 for an integer s > 1, by Euler and Maclaurin.
__device__ inline double hurwitz_zeta(double s, double q) {
    if (q != q || !(s > 1)) return NAN_DOUBLE;
    if (q <= 0 && q == ::floor(q)) return INFINITY;
    // Far below zero the skipped terms of the first loop vanish; start at the first that matters.
    double a = q < -1e6 ? q - ::floor(q) - 1e6 : q;
    double sum = 0;
    while (a < 10) {
        sum += ::pow(a, -s);
        a += 1;
    }
    double power = ::pow(a, -s);
    sum += power * a / (s - 1) + 0.5 * power;
    const double series[8] = {12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183795e9, 7.47242496e10, -2.9501307279181643e12};
    double factor = s, k = 0, t = power / a;
    for (int i = 0; i < 8; i++) {
        sum += factor * t / series[i];
        factor *= (s + k + 1) * (s + k + 2);
        k += 2;
        t /= a * a;
    }
    return sum;
}
__device__ inline R digamma(R x) { return (R)digamma64((double)x); }
__device__ inline R polygamma(R n, R x) {
    if (n == 0) return digamma(x);
    double sign = ::fmod((double)n, 2.0) == 0 ? -1 : 1;
    return (R)(sign * ::tgamma((double)n + 1) * hurwitz_zeta((double)n + 1, (double)x));
}
#elif INTEGER
// Integer arithmetic wraps; a division by zero gives zero (the tensor layer reports it).
__device__ inline R abs(R x) { return x < 0 ? -x : x; }
__device__ inline R trunc_div(R a, R b) { return b == 0 ? 0 : b == -1 ? -a : a / b; }
__device__ inline R fmod(R a, R b) { return b == 0 || b == -1 ? 0 : a % b; }
__device__ inline R remainder(R a, R b) {
    R rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
__device__ inline R floor_div(R a, R b) {
    R rest = fmod(a, b);
    return trunc_div(a, b) - (rest != 0 && (rest < 0) != (b < 0));
}
__device__ inline R pow(R base, R exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    R y = 1;
    while (exponent > 0) {
        if (exponent & 1) y *= base;
        base *= base;
        exponent >>= 1;
    }
    return y;
}
// A shift count out of range gives zero, or the sign.
__device__ inline bool shift_fits(R b) { return b >= 0 && b < (R)(sizeof(C) * 8); }
__device__ inline R bits_and(R a, R b) { return a & b; }
__device__ inline R bits_or(R a, R b) { return a | b; }
__device__ inline R bits_xor(R a, R b) { return a ^ b; }
__device__ inline R bits_shl(R a, R b) { return shift_fits(b) ? a << b : 0; }
__device__ inline R bits_shr(R a, R b) { return a >> (shift_fits(b) ? b : (R)(sizeof(R) * 8 - 1)); }
#endif

}  // namespace rl

