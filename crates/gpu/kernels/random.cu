// Random fills and dropout. An element's position in row-major order selects its words, so the numbers do not depend on
// the launch shape. A thread takes one block of four words: four elements of one word, or two of two (WORDS).

__device__ inline float uniform32(u32 word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }
__device__ inline double uniform64(u64 word) { return (double)(word >> 11) * (1.0 / 9007199254740992.0); }

#define PER_THREAD (4 / WORDS)

struct Numbers { double a, b, top; i64 low; u64 range; u32 below; };

// Normal values in pairs: the same operations in the same order as in the CPU engine's normal.rs, without fused
// multiply-adds, so both produce the same bits.
#if WORDS == 1
typedef float real;
#define ADD __fadd_rn
#define MUL __fmul_rn
#define DIV __fdiv_rn
#define SQRT __fsqrt_rn
#define LOG_TERMS {0.666666687f, 0.400001228f, 0.285507798f, 0.233316138f}
#define SIN_TERMS {-41.3417015f, 81.6052322f, -76.7012863f, 41.5894966f}
#define COS_TERMS {-19.7392082f, 64.9393692f, -85.448822f, 59.4240227f}
#define TERMS 4
#define LN2_HIGH 0.693359375f
#define LN2_LOW -0.000212194442f
#define TAU 6.28318530717958647692f
__device__ inline real split(real x, real* e) {
    i32 bits = __float_as_int(x), k = (bits - 0x3F3504F3) >> 23;
    *e = (real)k;
    return __int_as_float(bits - (i32)((u32)k << 23));
}
#else
typedef double real;
#define ADD __dadd_rn
#define MUL __dmul_rn
#define DIV __ddiv_rn
#define SQRT __dsqrt_rn
#define LOG_TERMS {0.6666666666666666, 0.40000000000000885, 0.28571428570799784, 0.22222222392581045, 0.18181795547521137, \
                   0.15386244737621665, 0.13268638369266825, 0.13088034850927555}
#define SIN_TERMS {-41.34170224039976, 81.60524927607506, -76.70585975306138, 42.05869394489034, -15.094642574983526, \
                   3.8199523336460497, -0.7181032931106821, 0.10347973052351776}
#define COS_TERMS {-19.739208802178716, 64.9393940226683, -85.45681720669369, 60.244641371854556, -26.42625677781518, \
                   7.903535612111678, -1.7143332579614863, 0.279740560419968}
#define TERMS 8
#define LN2_HIGH 0.6931467056274414
#define LN2_LOW 4.7493250390316726e-07
#define TAU 6.28318530717958647692
__device__ inline real split(real x, real* e) {
    i64 bits = __double_as_longlong(x), k = (bits - 0x3FE6A09E667F3BCDll) >> 52;
    *e = (real)k;
    return __longlong_as_double(bits - (i64)((u64)k << 52));
}
#endif

__device__ inline real polynomial(const real (&terms)[TERMS], real x) {
    real sum = terms[TERMS - 1];
#pragma unroll
    for (int i = TERMS - 2; i >= 0; i--) sum = ADD(MUL(sum, x), terms[i]);
    return sum;
}

__device__ inline void normal_pair(real a, real b, real mean, real deviation, real* first, real* second) {
    const real log_terms[TERMS] = LOG_TERMS, sin_terms[TERMS] = SIN_TERMS, cos_terms[TERMS] = COS_TERMS;
    real e, m = split(ADD((real)1, -a), &e);
    real s = DIV(ADD(m, (real)-1), ADD(m, (real)1)), z = MUL(s, s);
    real log_m = ADD(ADD(ADD(s, s), MUL(s, MUL(z, polynomial(log_terms, z)))), MUL(e, (real)LN2_LOW));
    real radius = MUL(SQRT(MUL((real)-2, ADD(MUL(e, (real)LN2_HIGH), log_m))), deviation);
    real quarters = MUL(b, (real)4);
    i32 k = (i32)ADD(quarters, (real)0.5);
    real r = MUL(ADD(quarters, -(real)k), (real)0.25);
    z = MUL(r, r);
    real sine = MUL(r, ADD((real)TAU, MUL(z, polynomial(sin_terms, z))));
    real cosine = ADD((real)1, MUL(z, polynomial(cos_terms, z)));
    if (k & 1) { real t = sine; sine = cosine; cosine = -t; }
    if (k & 2) { sine = -sine; cosine = -cosine; }
    *first = ADD(MUL(radius, cosine), mean);
    *second = ADD(MUL(radius, sine), mean);
}

#ifdef RANDOM
#define UNIFORM 0
#define NORMAL 1
#define INTEGERS 2
#define BERNOULLI 3

extern "C" __global__ void random(Nest<1> nest, Numbers n, Philox stream, OUT* out, u64 count) {
    u64 block = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    u64 first = block * PER_THREAD;
    if (first >= count) return;
    u32 w[4];
    philox_block(stream, block, w);
    OUT y[PER_THREAD];
#if WORDS == 1
#pragma unroll
    for (int i = 0; i < 4; i++) {
#if KIND == UNIFORM
        // Not fused, so that the CPU produces the same numbers.
        float v = __fadd_rn(__fmul_rn(uniform32(w[i]), (float)(n.b - n.a)), (float)n.a);
        y[i] = convert<OUT>(v > (float)n.top ? (float)n.top : v);
#elif KIND == NORMAL
        if (i % 2 == 0) {
            real first, second;
            normal_pair(uniform32(w[i]), uniform32(w[i + 1]), (real)n.a, (real)n.b, &first, &second);
            y[i] = convert<OUT>(first);
            y[i + 1] = convert<OUT>(second);
        }
#else
        y[i] = convert<OUT>((i32)(w[i] >> 8 < n.below));
#endif
    }
#else
    u64 a = w[0] | (u64)w[1] << 32, b = w[2] | (u64)w[3] << 32;
#if KIND == UNIFORM
    double u = __dadd_rn(n.a, __dmul_rn(uniform64(a), n.b - n.a)), v = __dadd_rn(n.a, __dmul_rn(uniform64(b), n.b - n.a));
    y[0] = convert<OUT>(u > n.top ? n.top : u);
    y[1] = convert<OUT>(v > n.top ? n.top : v);
#elif KIND == NORMAL
    real first_value, second_value;
    normal_pair(uniform64(a), uniform64(b), n.a, n.b, &first_value, &second_value);
    y[0] = convert<OUT>(first_value);
    y[1] = convert<OUT>(second_value);
#elif KIND == INTEGERS
    y[0] = convert<OUT>((i64)((u64)n.low + __umul64hi(a, n.range)));
    y[1] = convert<OUT>((i64)((u64)n.low + __umul64hi(b, n.range)));
#else
    y[0] = convert<OUT>((i32)(uniform64(a) < n.a));
    y[1] = convert<OUT>((i32)(uniform64(b) < n.a));
#endif
#endif
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++) {
        if (first + i < count) {
            idx at[1];
            nest.offsets((idx)(first + i), at);
            out[at[0]] = y[i];
        }
    }
}
#endif

#ifdef DROPOUT
// DENSE: all operands are row-major; four neighbours are loaded at once.
extern "C" __global__ void dropout(Nest<2> nest, Philox stream, u32 below, double keep, const T* x, T* out, u64 count) {
    u64 block = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    u64 first = block * 4;
    if (first >= count) return;
    u32 w[4];
    philox_block(stream, block, w);
    WIDE_T divisor = (WIDE_T)keep;
#if DENSE
    if (first + 4 <= count) {
        Vec<T, 4> v = *(const Vec<T, 4>*)(x + first);
#pragma unroll
        for (int i = 0; i < 4; i++) v.v[i] = w[i] >> 8 < below ? convert<T>(0) : convert<T>(convert<WIDE_T>(v.v[i]) / divisor);
        *(Vec<T, 4>*)(out + first) = v;
        return;
    }
#endif
    for (int i = 0; i < 4 && first + i < count; i++) {
        idx at[2];
        nest.offsets((idx)(first + i), at);
        out[at[1]] = w[i] >> 8 < below ? convert<T>(0) : convert<T>(convert<WIDE_T>(x[at[0]]) / divisor);
    }
}
#endif
