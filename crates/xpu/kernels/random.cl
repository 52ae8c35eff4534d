// Random fills and dropout. An element's position in row-major order selects its words, so the numbers do not depend on
// the launch shape. A work item takes one block of four words: four elements of one word, or two of two (WORDS).
// KIND: 0 uniform, 1 normal, 2 integers, 3 Bernoulli.

inline float uniform32(uint word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }
#if FP64
inline double uniform64(ulong word) { return (double)(word >> 11) * (1.0 / 9007199254740992.0); }
#endif

#define PER_ITEM (4 / WORDS)

// Normal values in pairs: the same operations in the same order as in the CPU engine's normal.rs, without fused
// multiply-adds (FP_CONTRACT is off), so both produce the same bits.
#if KIND == 1
#if WORDS == 1
typedef float real;
#define LOG_TERMS {0.666666687f, 0.400001228f, 0.285507798f, 0.233316138f}
#define SIN_TERMS {-41.3417015f, 81.6052322f, -76.7012863f, 41.5894966f}
#define COS_TERMS {-19.7392082f, 64.9393692f, -85.448822f, 59.4240227f}
#define TERMS 4
#define LN2_HIGH 0.693359375f
#define LN2_LOW -0.000212194442f
#define TAU 6.28318530717958647692f
inline real split_exponent(real x, real* e) {
    int bits = as_int(x), k = (bits - 0x3F3504F3) >> 23;
    *e = (real)k;
    return as_float(bits - (int)((uint)k << 23));
}
#else
typedef double real;
#define LOG_TERMS {0.6666666666666666, 0.40000000000000885, 0.28571428570799784, 0.22222222392581045, \
                   0.18181795547521137,                                                               \
                   0.15386244737621665, 0.13268638369266825, 0.13088034850927555}
#define SIN_TERMS {-41.34170224039976, 81.60524927607506, -76.70585975306138, 42.05869394489034, -15.094642574983526, \
                   3.8199523336460497, -0.7181032931106821, 0.10347973052351776}
#define COS_TERMS {-19.739208802178716, 64.9393940226683, -85.45681720669369, 60.244641371854556, -26.42625677781518, \
                   7.903535612111678, -1.7143332579614863, 0.279740560419968}
#define TERMS 8
#define LN2_HIGH 0.6931467056274414
#define LN2_LOW 4.7493250390316726e-07
#define TAU 6.28318530717958647692
inline real split_exponent(real x, real* e) {
    long bits = as_long(x), k = (bits - 0x3FE6A09E667F3BCDL) >> 52;
    *e = (real)k;
    return as_double(bits - (long)((ulong)k << 52));
}
#endif

#define POLYNOMIAL(sum, terms, x) \
    real sum = terms[TERMS - 1];  \
    for (int i_ = TERMS - 2; i_ >= 0; i_--) { real product_ = sum * (x); sum = product_ + terms[i_]; }

inline void normal_pair(real a, real b, real mean, real deviation, real* first, real* second) {
    const real log_terms[TERMS] = LOG_TERMS, sin_terms[TERMS] = SIN_TERMS, cos_terms[TERMS] = COS_TERMS;
    real e, m = split_exponent((real)1 - a, &e);
    real s = (m - (real)1) / (m + (real)1), z = s * s;
    POLYNOMIAL(log_sum, log_terms, z)
    real log_m = ((s + s) + s * (z * log_sum)) + e * (real)LN2_LOW;
    real log_x = e * (real)LN2_HIGH + log_m;
    real radius = sqrt((real)-2 * log_x) * deviation;
    real quarters = b * (real)4;
    int k = (quarters >= (real)0.5) + (quarters >= (real)1.5) + (quarters >= (real)2.5) + (quarters >= (real)3.5);
    real r = (quarters - (real)k) * (real)0.25;
    real w = r * r;
    POLYNOMIAL(sin_sum, sin_terms, w)
    POLYNOMIAL(cos_sum, cos_terms, w)
    real sine = r * ((real)TAU + w * sin_sum);
    real cosine = (real)1 + w * cos_sum;
    if (k & 1) { real t = sine; sine = cosine; cosine = -t; }
    if (k & 2) { sine = -sine; cosine = -cosine; }
    *first = radius * cosine + mean;
    *second = radius * sine + mean;
}
#endif

#ifdef RANDOM
typedef NEST(1) Nest;

// a, b: low and range, or mean and deviation; top: the largest value; low, range: of integers; below: the bound of the
// words for which a Bernoulli variable is one.
__kernel void random(const Nest nest, const N a, const N b, const N top, const long low, const ulong range,
                     const ulong below, const ulong seed, const ulong offset, __global OUT* out, const ulong count,
                     const uint codes) {
    const ulong block = get_global_id(0);
    const ulong first = block * PER_ITEM;
    if (first >= count) return;
    const uint4 words = philox_block(seed, offset, block);
    const uint w[4] = {words.x, words.y, words.z, words.w};
    R y[PER_ITEM];
#if WORDS == 1
#if KIND == 1
    normal_pair(uniform32(w[0]), uniform32(w[1]), a, b, &y[0], &y[1]);
    normal_pair(uniform32(w[2]), uniform32(w[3]), a, b, &y[2], &y[3]);
#else
    for (int i = 0; i < 4; i++) {
#if KIND == 0
        float product = uniform32(w[i]) * b;
        float v = product + a;
        y[i] = v > top ? top : v;
#else
        y[i] = w[i] >> 8 < (uint)below;
#endif
    }
#endif
#else
    const ulong pair[2] = {w[0] | (ulong)w[1] << 32, w[2] | (ulong)w[3] << 32};
#if KIND == 1
    normal_pair(uniform64(pair[0]), uniform64(pair[1]), a, b, &y[0], &y[1]);
#else
    for (int i = 0; i < 2; i++) {
#if KIND == 0
        double product = uniform64(pair[i]) * b;
        double v = a + product;
        y[i] = v > top ? top : v;
#elif KIND == 2
        y[i] = (long)((ulong)low + mul_hi(pair[i], range));
#else
        y[i] = (pair[i] >> 11) < below;
#endif
    }
#endif
#endif
    for (int i = 0; i < PER_ITEM; i++) {
        if (first + i < count) {
            long at[1] = {0};
            NEST_OFFSETS(nest, 1, first + i, 0, at);
            STORE_OUT(out, at[0], y[i]);
        }
    }
}
#endif

#ifdef DROPOUT
typedef NEST(2) Nest;

__kernel void dropout(const Nest nest, const ulong seed, const ulong offset, const uint below, const R keep,
                      const __global T* x, __global T* out, const ulong count, const uint codes) {
    const ulong block = get_global_id(0);
    const ulong first = block * 4;
    if (first >= count) return;
    const uint4 words = philox_block(seed, offset, block);
    const uint w[4] = {words.x, words.y, words.z, words.w};
    for (int i = 0; i < 4; i++) {
        if (first + i < count) {
#if DENSE
            const ulong at[2] = {first + i, first + i};
#else
            long at[2] = {0, 0};
            NEST_OFFSETS(nest, 2, first + i, 0, at);
#endif
            STORE_T(out, at[1], w[i] >> 8 < below ? (R)0 : LOAD_T(x, at[0]) / keep);
        }
    }
}
#endif
