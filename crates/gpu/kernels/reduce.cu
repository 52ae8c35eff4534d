// Reductions over any dimensions of any layout.
//
// THREADS_IN threads split an output's elements; a block has THREADS_OUT outputs. ALONG selects which of the two runs
// along x (neighbouring threads read neighbouring elements). If outputs are few, their elements are split into
// gridDim.y pieces, and a second kernel joins the partial results in order: results do not depend on timing. OP is the
// reduction, W the accumulator type; T and OUT are the dtypes.

enum { SUM, MEAN, PROD, MAX, MIN, ANY, ALL, VAR, NORM0, NORM1, NORM2, NORM_INF, NORM_NEG_INF, NORM_P, LOGSUMEXP, SUMSQUARES, COUNT, ARGMAX, ARGMIN };

#define IS_WELFORD (OP_CODE == 7)
#define IS_LSE (OP_CODE == 14)
#define IS_ARG (OP_CODE >= 17)
#define KEEPS_LARGEST (OP_CODE == MAX || OP_CODE == NORM_INF || OP_CODE == ARGMAX)
#define KEEPS_SMALLEST (OP_CODE == MIN || OP_CODE == NORM_NEG_INF || OP_CODE == ARGMIN)

__device__ inline float magnitude(float x) { return fabsf(x); }
__device__ inline double magnitude(double x) { return fabs(x); }
__device__ inline i64 magnitude(i64 x) { return x < 0 ? -x : x; }
__device__ inline float power(float x, float p) { return powf(x, p); }
__device__ inline double power(double x, double p) { return pow(x, p); }
__device__ inline i64 power(i64 x, i64) { return x; }
__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline i64 exponential(i64 x) { return x; }
__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline double logarithm(double x) { return log(x); }
__device__ inline i64 logarithm(i64 x) { return x; }
__device__ inline float root(float x) { return sqrtf(x); }
__device__ inline double root(double x) { return sqrt(x); }
__device__ inline i64 root(i64 x) { return x; }

template <class A> struct Limits;
template <> struct Limits<float> { static __device__ float low() { return (float)-INFINITY; } static __device__ float high() { return (float)INFINITY; } };
template <> struct Limits<double> { static __device__ double low() { return -INFINITY; } static __device__ double high() { return INFINITY; } };
template <> struct Limits<i64> { static __device__ i64 low() { return (i64)0x8000000000000000ULL; } static __device__ i64 high() { return 0x7fffffffffffffffLL; } };

#if IS_WELFORD
struct Acc {
    W n, mean, m2;
    __device__ void start(W) { n = 0, mean = 0, m2 = 0; }
    __device__ void add(W x, i64, W) {
        n += 1;
        W d = x - mean;
        mean += d / n;
        m2 += d * (x - mean);
    }
    __device__ void merge(Acc b, W) {
        W all = n + b.n;
        if (b.n == 0) return;
        W d = b.mean - mean;
        mean += d * (b.n / all);
        m2 += b.m2 + d * d * (n * (b.n / all));
        n = all;
    }
};
#elif IS_LSE
struct Acc {
    W top, sum;
    __device__ void start(W) { top = Limits<W>::low(), sum = 0; }
    __device__ void join(W t, W s) {
        if (t == top) {
            sum += s;
        } else if (t > top) {
            sum = sum * exponential(top - t) + s;
            top = t;
        } else {
            sum += s * exponential(t - top);
        }
    }
    __device__ void add(W x, i64, W) { join(x, 1); }
    __device__ void merge(Acc b, W) { if (b.sum != 0) join(b.top, b.sum); }
};
#elif IS_ARG
struct Acc {
    W value;
    i64 index;
    __device__ void start(W) { index = -1; }
    __device__ void add(W x, i64 i, W) {
        bool better = index < 0 || (KEEPS_LARGEST ? x > value : x < value) || (x != x && value == value);
        bool same = x == value || (x != x && value != value);
        if (better || (same && i < index)) value = x, index = i;
    }
    __device__ void merge(Acc b, W p) { if (b.index >= 0) add(b.value, b.index, p); }
};
#else
struct Acc {
    W a;
    __device__ void start(W) { a = OP_CODE == PROD || OP_CODE == ALL ? (W)1 : KEEPS_LARGEST ? Limits<W>::low() : KEEPS_SMALLEST ? Limits<W>::high() : (W)0; }
    __device__ void join(W x) {
        if (KEEPS_LARGEST) a = (a >= x || a != a) ? a : x;
        else if (KEEPS_SMALLEST) a = (a <= x || a != a) ? a : x;
        else if (OP_CODE == PROD) a *= x;
        else if (OP_CODE == ANY) a = a != 0 || x != 0 ? (W)1 : (W)0;
        else if (OP_CODE == ALL) a = a != 0 && x != 0 ? (W)1 : (W)0;
        else a += x;
    }
    __device__ void add(W x, i64, W p) {
        if (OP_CODE == NORM1 || OP_CODE == NORM_INF || OP_CODE == NORM_NEG_INF) x = magnitude(x);
        else if (OP_CODE == NORM2 || OP_CODE == SUMSQUARES) x = x * x;
        else if (OP_CODE == NORM0 || OP_CODE == COUNT) x = x != 0 ? (W)1 : (W)0;
        else if (OP_CODE == NORM_P) x = power(magnitude(x), p);
        join(x);
    }
    __device__ void merge(Acc b, W) { join(b.a); }
};
#endif

__device__ inline W finish(Acc acc, double count, double param) {
#if IS_WELFORD
    double divisor = count - param;
    return (W)((acc.m2 < 0 ? (W)0 : acc.m2) / (W)(divisor > 0 ? divisor : 0));
#elif IS_LSE
    return acc.top + logarithm(acc.sum);
#elif IS_ARG
    return acc.value;
#else
    if (OP_CODE == MEAN) return (W)(acc.a / (W)count);
    if (OP_CODE == NORM2) return root(acc.a);
    if (OP_CODE == NORM_P) return power(acc.a, (W)(1 / param));
    return acc.a;
#endif
}


// Counts and truth values use unconverted elements: conversion to an integer would drop a float's fraction.
__device__ inline W element(T x) {
#if OP_CODE == 5 || OP_CODE == 6 || OP_CODE == 16
    return convert<W>(convert<bool8>(x));
#else
    return convert<W>(x);
#endif
}

#ifdef FOLD
extern "C" __global__ void __launch_bounds__(256) reduce(Nest<2> kept, Nest<1> reduced, const T* x, OUT* out, i64* indices, Acc* partial, u64 outputs, u64 length, u64 piece, double param) {
    // Neighbouring outputs that a thread folds at once.
    const int OWN = ALONG ? LANES : 1;
    __shared__ u64 memory[256 * OWN * sizeof(Acc) / 8 + 1];
    Acc* shared = (Acc*)memory;
#if ALONG == 0
    u32 in = threadIdx.x % THREADS_IN, o = threadIdx.x / THREADS_IN;
#else
    u32 o = threadIdx.x % THREADS_OUT, in = threadIdx.x / THREADS_OUT;
#endif
    u64 output = (blockIdx.x * (u64)THREADS_OUT + o) * OWN;
    u64 first = blockIdx.y * piece, last = first + piece < length ? first + piece : length;
    W p = (W)param;
    Acc acc[OWN];
#pragma unroll
    for (int v = 0; v < OWN; v++) acc[v].start(p);
    if (output < outputs) {
        idx at[2] = {0, 0};
        kept.offsets((idx)output, at);
        const T* base = x + at[0];
#if LANES > 1 && ALONG == 0
        // A single contiguous loop: a piece starts at a multiple of LANES.
        Acc lanes[LANES];
#pragma unroll
        for (int v = 0; v < LANES; v++) lanes[v].start(p);
        u64 e = first + in * (u64)LANES;
        for (; e + THREADS_IN * LANES + LANES <= last; e += 2 * THREADS_IN * LANES) {
            Vec<T, LANES> one = *(const Vec<T, LANES>*)(base + e), two = *(const Vec<T, LANES>*)(base + e + THREADS_IN * LANES);
#pragma unroll
            for (int v = 0; v < LANES; v++) lanes[v].add(element(one.v[v]), (i64)(e + v), p);
#pragma unroll
            for (int v = 0; v < LANES; v++) lanes[v].add(element(two.v[v]), (i64)(e + THREADS_IN * LANES + v), p);
        }
        for (; e < last; e += THREADS_IN * LANES) {
#pragma unroll
            for (int v = 0; v < LANES; v++) if (e + v < last) lanes[v].add(element(base[e + v]), (i64)(e + v), p);
        }
#pragma unroll
        for (int v = 0; v < LANES; v++) acc[0].merge(lanes[v], p);
#else
        // Keeps several loads in flight; for a single output each has its own sum.
        const int TURNS = 4, SUMS = OWN > 1 ? 1 : TURNS;
        Acc turns[SUMS][OWN];
#pragma unroll
        for (int t = 0; t < SUMS; t++) {
#pragma unroll
            for (int v = 0; v < OWN; v++) turns[t][v].start(p);
        }
        for (u64 e = first + in; e < last; e += TURNS * THREADS_IN) {
            Vec<T, OWN> loaded[TURNS];
#pragma unroll
            for (int t = 0; t < TURNS; t++) {
                if (e + t * THREADS_IN < last) {
                    idx from[1];
                    reduced.offsets((idx)(e + t * THREADS_IN), from);
                    loaded[t] = *(const Vec<T, OWN>*)(base + from[0]);
                }
            }
#pragma unroll
            for (int t = 0; t < TURNS; t++) {
                if (e + t * THREADS_IN < last) {
#pragma unroll
                    for (int v = 0; v < OWN; v++) turns[t % SUMS][v].add(element(loaded[t].v[v]), (i64)(e + t * THREADS_IN), p);
                }
            }
        }
#pragma unroll
        for (int t = 0; t < SUMS; t++) {
#pragma unroll
            for (int v = 0; v < OWN; v++) acc[v].merge(turns[t][v], p);
        }
#endif
    }
    u32 place = o * THREADS_IN + in;
#pragma unroll
    for (int v = 0; v < OWN; v++) shared[v * 256 + place] = acc[v];
    for (u32 half = THREADS_IN / 2; half > 0; half /= 2) {
        __syncthreads();
        if (in < half) {
#pragma unroll
            for (int v = 0; v < OWN; v++) {
                acc[v].merge(shared[v * 256 + place + half], p);
                shared[v * 256 + place] = acc[v];
            }
        }
    }
    if (in != 0 || output >= outputs) return;
#pragma unroll
    for (int v = 0; v < OWN; v++) {
        if (gridDim.y > 1) {
            partial[blockIdx.y * outputs + output + v] = acc[v];
        } else {
            idx at[2] = {0, 0};
            kept.offsets((idx)(output + v), at);
            out[at[1]] = convert<OUT>(finish(acc[v], (double)length, param));
#if IS_ARG
            indices[at[1]] = acc[v].index;
#endif
        }
    }
}
#endif

#ifdef JOIN
// Joins the pieces of each output in a fixed order: each of JOIN_THREADS threads takes every JOIN_THREADS-th piece,
// then the threads' results are joined in pairs.
extern "C" __global__ void reduce_join(Nest<2> kept, OUT* out, i64* indices, const Acc* partial, u64 outputs, u64 pieces, u64 length, double param) {
    __shared__ u64 memory[128 * ((sizeof(Acc) + 7) / 8)];
    Acc* shared = (Acc*)memory;
    u32 in = threadIdx.x % JOIN_THREADS;
    u64 output = blockIdx.x * (u64)(128 / JOIN_THREADS) + threadIdx.x / JOIN_THREADS;
    W p = (W)param;
    Acc acc;
    acc.start(p);
    if (output < outputs) {
        for (u64 i = in; i < pieces; i += JOIN_THREADS) acc.merge(partial[i * outputs + output], p);
    }
    shared[threadIdx.x] = acc;
    for (u32 half = JOIN_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (in < half) {
            acc.merge(shared[threadIdx.x + half], p);
            shared[threadIdx.x] = acc;
        }
    }
    if (in != 0 || output >= outputs) return;
    idx at[2];
    kept.offsets((idx)output, at);
    out[at[1]] = convert<OUT>(finish(acc, (double)length, param));
#if IS_ARG
    indices[at[1]] = acc.index;
#endif
}
#endif
