// Softmax and its logarithm over contiguous rows.
//
// ROW: TPR threads split a row. If STEPS > 0, each keeps its STEPS vectors of LANES elements in registers; otherwise
// the row is read again. COLUMN: [outer, n, inner] with inner > 1: a thread walks a column, neighbouring threads
// neighbouring columns.

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline double logarithm(double x) { return log(x); }
#define LOWEST ((W)-INFINITY)

#ifdef ROW
#define VECTORS (STEPS > 0 ? STEPS : 1)
typedef Vec<T, LANES> V;

struct Place { u64 row; u32 lane; };
__device__ inline Place place() {
    Place p;
    p.row = blockIdx.x * (u64)(blockDim.x / TPR) + threadIdx.x / TPR;
    p.lane = threadIdx.x % TPR;
    return p;
}

extern "C" __global__ void __launch_bounds__(TPR < 128 ? 128 : TPR) softmax(const T* x, T* y, u64 rows, u64 n) {
    __shared__ W shared[32];
    Place p = place();
    if (p.row >= rows) return;
    x += p.row * n;
    y += p.row * n;
    u32 vectors = (u32)(n / LANES);
    W top = LOWEST, sum = 0;
#if STEPS > 0
    W v[STEPS][LANES];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        u32 at = p.lane + s * TPR;
        if (at < vectors) {
            V one = ((const V*)x)[at];
#pragma unroll
            for (int l = 0; l < LANES; l++) v[s][l] = convert<W>(one.v[l]), top = Largest::merge(top, v[s][l]);
        } else {
#pragma unroll
            for (int l = 0; l < LANES; l++) v[s][l] = LOWEST;
        }
    }
    top = group_reduce<Largest, TPR>(top, shared);
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            W e = exponential(v[s][l] - top);
            if (p.lane + s * TPR < vectors) sum += e;
            v[s][l] = LOG ? v[s][l] - top : e;
        }
    }
    sum = group_reduce<Sum, TPR>(sum, shared);
    W factor = LOG ? logarithm(sum) : 1 / sum;
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        u32 at = p.lane + s * TPR;
        if (at < vectors) {
            V one;
#pragma unroll
            for (int l = 0; l < LANES; l++) one.v[l] = convert<T>(LOG ? v[s][l] - factor : v[s][l] * factor);
            ((V*)y)[at] = one;
        }
    }
#else
    for (u32 at = p.lane; at < vectors; at += TPR) {
        V one = ((const V*)x)[at];
        W here = LOWEST;
#pragma unroll
        for (int l = 0; l < LANES; l++) here = Largest::merge(here, convert<W>(one.v[l]));
        W higher = Largest::merge(top, here);
        // As long as all elements are minus infinity, differences would be NaN.
        W base = higher == LOWEST ? (W)0 : higher;
        sum *= exponential(top - base);
#pragma unroll
        for (int l = 0; l < LANES; l++) sum += exponential(convert<W>(one.v[l]) - base);
        top = higher;
    }
    W all = group_reduce<Largest, TPR>(top, shared);
    sum = group_reduce<Sum, TPR>(top == LOWEST ? (W)0 : sum * exponential(top - all), shared);
    W factor = LOG ? logarithm(sum) : 1 / sum;
    for (u32 at = p.lane; at < vectors; at += TPR) {
        V one = ((const V*)x)[at];
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            W d = convert<W>(one.v[l]) - all;
            one.v[l] = convert<T>(LOG ? d - factor : exponential(d) * factor);
        }
        ((V*)y)[at] = one;
    }
#endif
}

extern "C" __global__ void __launch_bounds__(TPR < 128 ? 128 : TPR) softmax_backward(const T* dy, const T* y, T* dx, u64 rows, u64 n) {
    __shared__ W shared[32];
    Place p = place();
    if (p.row >= rows) return;
    dy += p.row * n;
    y += p.row * n;
    dx += p.row * n;
    u32 vectors = (u32)(n / LANES);
    W sum = 0;
#if STEPS > 0
    V a[STEPS], b[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        u32 at = p.lane + s * TPR;
        if (at < vectors) a[s] = ((const V*)dy)[at], b[s] = ((const V*)y)[at];
    }
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        if (p.lane + s * TPR < vectors) {
#pragma unroll
            for (int l = 0; l < LANES; l++) sum += LOG ? convert<W>(a[s].v[l]) : convert<W>(a[s].v[l]) * convert<W>(b[s].v[l]);
        }
    }
#else
    for (u32 at = p.lane; at < vectors; at += TPR) {
        V a = ((const V*)dy)[at], b = ((const V*)y)[at];
#pragma unroll
        for (int l = 0; l < LANES; l++) sum += LOG ? convert<W>(a.v[l]) : convert<W>(a.v[l]) * convert<W>(b.v[l]);
    }
#endif
    sum = group_reduce<Sum, TPR>(sum, shared);
#if STEPS > 0
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        u32 at = p.lane + s * TPR;
        if (at < vectors) {
            V one;
#pragma unroll
            for (int l = 0; l < LANES; l++) {
                W d = convert<W>(a[s].v[l]), v = convert<W>(b[s].v[l]);
                one.v[l] = convert<T>(LOG ? d - exponential(v) * sum : v * (d - sum));
            }
            ((V*)dx)[at] = one;
        }
    }
#else
    for (u32 at = p.lane; at < vectors; at += TPR) {
        V a = ((const V*)dy)[at], b = ((const V*)y)[at], one;
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            W d = convert<W>(a.v[l]), v = convert<W>(b.v[l]);
            one.v[l] = convert<T>(LOG ? d - exponential(v) * sum : v * (d - sum));
        }
        ((V*)dx)[at] = one;
    }
#endif
}
#endif

#ifdef COLUMN
extern "C" __global__ void softmax_columns(const T* x, T* y, u64 outer, u64 n, u64 inner) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= outer * inner) return;
    u64 start = i / inner * n * inner + i % inner;
    x += start;
    y += start;
    W top = LOWEST, sum = 0;
    for (u64 k = 0; k < n; k++) top = Largest::merge(top, convert<W>(x[k * inner]));
    for (u64 k = 0; k < n; k++) sum += exponential(convert<W>(x[k * inner]) - top);
    W factor = LOG ? logarithm(sum) : 1 / sum;
    for (u64 k = 0; k < n; k++) {
        W d = convert<W>(x[k * inner]) - top;
        y[k * inner] = convert<T>(LOG ? d - factor : exponential(d) * factor);
    }
}

extern "C" __global__ void softmax_columns_backward(const T* dy, const T* y, T* dx, u64 outer, u64 n, u64 inner) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= outer * inner) return;
    u64 start = i / inner * n * inner + i % inner;
    dy += start;
    y += start;
    dx += start;
    W sum = 0;
    for (u64 k = 0; k < n; k++) sum += LOG ? convert<W>(dy[k * inner]) : convert<W>(dy[k * inner]) * convert<W>(y[k * inner]);
    for (u64 k = 0; k < n; k++) {
        W d = convert<W>(dy[k * inner]), v = convert<W>(y[k * inner]);
        dx[k * inner] = convert<T>(LOG ? d - exponential(v) * sum : v * (d - sum));
    }
}
#endif
