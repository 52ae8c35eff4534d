// The functions that rows of the op table call, with a prefix: OpenCL C has functions of the same names.
//
// R: the type of the arithmetic; REAL or INTEGER is its kind. NEEDS_…: the long functions that a row calls. `bits`,
// an argument of rows that shift: the width of the integers.

#if REAL || INTEGER
#define rl_lit(v) ((R)(v))
#define ZERO ((R)0)
#define ONE ((R)1)
#define let const R

inline R rl_select(int mask, R a, R b) { return mask ? a : b; }
inline int rl_lt(R a, R b) { return a < b; }
inline int rl_le(R a, R b) { return a <= b; }
inline int rl_gt(R a, R b) { return b < a; }
inline int rl_ge(R a, R b) { return b <= a; }
inline int rl_eq(R a, R b) { return a == b; }
inline int rl_ne(R a, R b) { return !(a == b); }
inline int rl_both(int a, int b) { return a && b; }
inline R rl_sign(R x) { return (R)0 < x ? (R)1 : x < (R)0 ? (R)-1 : (R)0; }
inline R rl_max(R a, R b) { return (a > b || a != a) ? a : b; }
inline R rl_min(R a, R b) { return (a < b || a != a) ? a : b; }
#endif

#if REAL
#define FUNCTION(name) inline R rl_##name(R x) { return name(x); }
FUNCTION(exp)
FUNCTION(exp2)
FUNCTION(expm1)
FUNCTION(log)
FUNCTION(log2)
FUNCTION(log10)
FUNCTION(log1p)
FUNCTION(sqrt)
FUNCTION(sin)
FUNCTION(cos)
FUNCTION(tan)
FUNCTION(asin)
FUNCTION(acos)
FUNCTION(atan)
FUNCTION(sinh)
FUNCTION(cosh)
FUNCTION(tanh)
FUNCTION(asinh)
FUNCTION(acosh)
FUNCTION(atanh)
FUNCTION(erf)
FUNCTION(erfc)
FUNCTION(lgamma)
FUNCTION(floor)
FUNCTION(ceil)
FUNCTION(trunc)
inline R rl_abs(R x) { return fabs(x); }
inline R rl_round(R x) { return rint(x); }
inline R rl_sigmoid(R x) { return (R)1 / ((R)1 + exp(-x)); }
inline R rl_atan2(R y, R x) { return atan2(y, x); }
inline R rl_copysign(R a, R b) { return copysign(a, b); }
#if R_IS_DOUBLE
inline R rl_step_bits(R x, R n) { return as_double(as_long(x) + (long)n); }
#else
inline R rl_step_bits(R x, R n) { return as_float(as_int(x) + (int)n); }
#endif
inline R rl_pow(R a, R b) { return pow(a, b); }
inline R rl_fmod(R a, R b) { return fmod(a, b); }
inline R rl_trunc_div(R a, R b) { return trunc(a / b); }
inline R rl_remainder(R a, R b) {
    R rest = fmod(a, b);
    return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}
inline R rl_floor_div(R a, R b) {
    // The remainder is exact, so the remaining quotient is an integer up to one rounding error.
    if (b == 0) return a / b;
    R rest = fmod(a, b);
    R exact = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) exact -= 1;
    if (exact == 0) return copysign((R)0, a / b);
    R whole = floor(exact);
    return exact - whole > (R)0.5 ? whole + 1 : whole;
}
#ifdef NEEDS_normal_cdf
#if R_IS_DOUBLE
inline R rl_normal_cdf(R x) { return 0.5 * erfc(x * -0.7071067811865476); }
#else
// Computes the upper tail 1 - cdf(|x|) as a power of two: as accurate as numbers near one. The polynomial's error times
// the power is below 1e-8 everywhere.
inline R rl_normal_cdf(R x) {
    const float t = fabs(x);
    float p = -2.8349007e-06f;
    p = p * t + 3.9377552e-05f;
    p = p * t + -1.861796e-04f;
    p = p * t + -1.3693783e-04f;
    p = p * t + 7.063422e-03f;
    p = p * t + -5.249618e-02f;
    p = p * t + -4.592082e-01f;
    p = p * t + -1.1511052f;
    const float beyond = exp2(p * t - 1.0f);
    return x < 0 ? beyond : 1 - beyond;
}
#endif
#endif

// Special functions are computed in D: double if the device has it.
#if FP64
typedef double D;
#else
typedef float D;
#endif
#ifdef NEEDS_erfinv
// Giles' approximation of the inverse error function, refined by two steps of Newton's method.
inline R rl_erfinv(R x0) {
    D x = (D)x0;
    if (x != x || fabs(x) > 1) return (R)NAN;
    if (fabs(x) == 1) return (R)copysign((D)INFINITY, x);
    D w = -log((1 - x) * (1 + x)), p;
    if (w < 5) {
        w -= (D)2.5;
        p = (D)2.81022636e-08;
        p = (D)3.43273939e-07 + p * w;
        p = (D)-3.5233877e-06 + p * w;
        p = (D)-4.39150654e-06 + p * w;
        p = (D)0.00021858087 + p * w;
        p = (D)-0.00125372503 + p * w;
        p = (D)-0.00417768164 + p * w;
        p = (D)0.246640727 + p * w;
        p = (D)1.50140941 + p * w;
    } else {
        w = sqrt(w) - 3;
        p = (D)-0.000200214257;
        p = (D)0.000100950558 + p * w;
        p = (D)0.00134934322 + p * w;
        p = (D)-0.00367342844 + p * w;
        p = (D)0.00573950773 + p * w;
        p = (D)-0.0076224613 + p * w;
        p = (D)0.00943887047 + p * w;
        p = (D)1.00167406 + p * w;
        p = (D)2.83297682 + p * w;
    }
    D y = p * x;
#if FP64
    for (int i = 0; i < 2; i++) {
        // For large |x| the complement is accurate.
        D off = fabs(x) < 0.5 ? erf(y) - x : copysign((D)1, x) * ((1 - fabs(x)) - erfc(fabs(y)));
        y -= off / (1.1283791670955126 * exp(-y * y));
    }
#endif
    return (R)y;
}
#endif
#if defined(NEEDS_digamma) || defined(NEEDS_polygamma)
// Derivatives of the logarithm of the gamma function.
inline D digamma_wide(D x) {
    const D PI_D = (D)3.141592653589793;
    if (x == 0) return copysign((D)INFINITY, -x);
    D reflected = 0;
    if (x < 0) {
        if (x == trunc(x)) return (D)NAN;
        // The tangent has period one in x and is most accurate near zero.
        reflected = -PI_D / tan(PI_D * (x - rint(x)));
        x = 1 - x;
    }
    D sum = 0;
    while (x < 10) {
        sum -= 1 / x;
        x += 1;
    }
    D z = 1 / (x * x);
    D series = (D)-691 / 32760 + z / 12;
    series = (D)-1 / 240 + z * ((D)1 / 132 + z * series);
    series = z * ((D)1 / 12 + z * ((D)-1 / 120 + z * ((D)1 / 252 + z * series)));
    return reflected + sum + log(x) - (D)0.5 / x - (isinf(x) ? 0 : series);
}
inline R rl_digamma(R x) { return (R)digamma_wide((D)x); }
#endif
#ifdef NEEDS_polygamma
// The sum of (q + k)^-s over k >= 0 for an integer s > 1, by Euler and Maclaurin.
inline D hurwitz_zeta(D s, D q) {
    if (q != q || !(s > 1)) return (D)NAN;
    if (q <= 0 && q == floor(q)) return (D)INFINITY;
    // Far below zero the skipped terms of the first loop vanish; start at the first that matters.
    D a = q < (D)-1e6 ? q - floor(q) - (D)1e6 : q;
    D sum = 0;
    while (a < 10) {
        sum += pow(a, -s);
        a += 1;
    }
    D power = pow(a, -s);
    sum += power * a / (s - 1) + (D)0.5 * power;
    const D series[8] = {12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183795e9, 7.47242496e10,
                         -2.9501307279181643e12};
    D factor = s, k = 0, t = power / a;
    for (int i = 0; i < 8; i++) {
        sum += factor * t / series[i];
        factor *= (s + k + 1) * (s + k + 2);
        k += 2;
        t /= a * a;
    }
    return sum;
}
inline R rl_polygamma(R n, R x) {
    if (n == 0) return rl_digamma(x);
    D sign = fmod((D)n, (D)2) == 0 ? -1 : 1;
    return (R)(sign * tgamma((D)n + 1) * hurwitz_zeta((D)n + 1, (D)x));
}
#endif
#elif INTEGER
// Integer arithmetic wraps; a division by zero gives zero (the tensor layer reports it).
inline R rl_abs(R x) { return x < 0 ? -x : x; }
inline R rl_trunc_div(R a, R b) { return b == 0 ? 0 : b == -1 ? -a : a / b; }
inline R rl_fmod(R a, R b) { return b == 0 || b == -1 ? 0 : a % b; }
inline R rl_remainder(R a, R b) {
    R rest = rl_fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
inline R rl_floor_div(R a, R b) {
    R rest = rl_fmod(a, b);
    return rl_trunc_div(a, b) - (rest != 0 && (rest < 0) != (b < 0));
}
inline R rl_pow(R base, R exponent) {
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
#define shift_fits(b) ((b) >= 0 && (b) < (R)bits)
inline R rl_bits_and(R a, R b) { return a & b; }
inline R rl_bits_or(R a, R b) { return a | b; }
inline R rl_bits_xor(R a, R b) { return a ^ b; }
#define rl_bits_shl(a, b) (shift_fits(b) ? (a) << (b) : (R)0)
#define rl_bits_shr(a, b) ((a) >> (shift_fits(b) ? (b) : (R)(sizeof(R) * 8 - 1)))
#endif
