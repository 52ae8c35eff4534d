// Layer norm and RMS norm: rows normalised by their own statistics, scaled and shifted by column.
// T elements, W statistics, P parameters. ROW kernels share rows as softmax does; COLUMNS sums over rows for the parameters' gradients.

__device__ inline float inverse_root(float x) { return 1 / sqrtf(x); }
__device__ inline double inverse_root(double x) { return 1 / sqrt(x); }

#ifdef ROW
typedef Vec<T, LANES> V;

extern "C" __global__ void __launch_bounds__(TPR < 128 ? 128 : TPR) row_norm(const T* x, const P* weight, const P* bias, T* y, W* mean, W* rstd, u64 rows, u64 n, double eps) {
    __shared__ W shared[32];
    u64 row = blockIdx.x * (u64)(blockDim.x / TPR) + threadIdx.x / TPR;
    u32 lane = threadIdx.x % TPR, vectors = (u32)(n / LANES);
    if (row >= rows) return;
    x += row * n;
    y += row * n;
    W middle = 0, squares = 0;
#if STEPS > 0
    V v[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; s++) if (lane + s * TPR < vectors) v[s] = ((const V*)x)[lane + s * TPR];
#define EACH(body)                                            \
    _Pragma("unroll") for (int s = 0; s < STEPS; s++) {       \
        u32 at = lane + s * TPR;                              \
        if (at < vectors) {                                   \
            V& one = v[s];                                    \
            body                                              \
        }                                                     \
    }
#else
#define EACH(body)                                            \
    for (u32 at = lane; at < vectors; at += TPR) {            \
        V one = ((const V*)x)[at];                            \
        body                                                  \
    }
#endif
    if (!RMS) {
        EACH(_Pragma("unroll") for (int l = 0; l < LANES; l++) middle += convert<W>(one.v[l]);)
        middle = group_reduce<Sum, TPR>(middle, shared) / (W)n;
    }
    EACH(_Pragma("unroll") for (int l = 0; l < LANES; l++) { W d = convert<W>(one.v[l]) - middle; squares += d * d; })
    squares = group_reduce<Sum, TPR>(squares, shared) / (W)n;
    W scale = inverse_root(squares + (W)eps);
    EACH(
        V out;
        _Pragma("unroll") for (int l = 0; l < LANES; l++) {
            W h = (convert<W>(one.v[l]) - middle) * scale;
            if (weight) h *= convert<W>(weight[at * LANES + l]);
            if (bias) h += convert<W>(bias[at * LANES + l]);
            out.v[l] = convert<T>(h);
        }
        ((V*)y)[at] = out;
    )
    if (lane == 0) {
        if (!RMS) mean[row] = middle;
        rstd[row] = scale;
    }
}

extern "C" __global__ void __launch_bounds__(TPR < 128 ? 128 : TPR) row_norm_backward(const T* dy, const T* x, const P* weight, const W* mean, const W* rstd, T* dx, u64 rows, u64 n) {
    __shared__ W shared[32];
    u64 row = blockIdx.x * (u64)(blockDim.x / TPR) + threadIdx.x / TPR;
    u32 lane = threadIdx.x % TPR, vectors = (u32)(n / LANES);
    if (row >= rows) return;
    x += row * n;
    dy += row * n;
    dx += row * n;
    W middle = RMS ? (W)0 : mean[row], scale = rstd[row];
    W plain = 0, along = 0;
#if STEPS > 0
    V a[STEPS], b[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        if (lane + s * TPR < vectors) a[s] = ((const V*)dy)[lane + s * TPR], b[s] = ((const V*)x)[lane + s * TPR];
    }
#define PAIRS(body)                                           \
    _Pragma("unroll") for (int s = 0; s < STEPS; s++) {       \
        u32 at = lane + s * TPR;                              \
        if (at < vectors) {                                   \
            V &g = a[s], &h = b[s];                           \
            body                                              \
        }                                                     \
    }
#else
#define PAIRS(body)                                           \
    for (u32 at = lane; at < vectors; at += TPR) {            \
        V g = ((const V*)dy)[at], h = ((const V*)x)[at];      \
        body                                                  \
    }
#endif
#define TERMS                                                                                \
    W d = convert<W>(g.v[l]) * (weight ? convert<W>(weight[at * LANES + l]) : (W)1);         \
    W hat = (convert<W>(h.v[l]) - middle) * scale;
    PAIRS(_Pragma("unroll") for (int l = 0; l < LANES; l++) { TERMS plain += d; along += d * hat; })
    along = group_reduce<Sum, TPR>(along, shared) / (W)n;
    plain = RMS ? (W)0 : group_reduce<Sum, TPR>(plain, shared) / (W)n;
    PAIRS(
        V out;
        _Pragma("unroll") for (int l = 0; l < LANES; l++) {
            TERMS
            out.v[l] = convert<T>((d - plain - hat * along) * scale);
        }
        ((V*)dx)[at] = out;
    )
}
#endif

#ifdef COLUMNS
// Sums over a piece of the rows: dy * hat and dy, per column. 32 columns by 8 rows of threads.
extern "C" __global__ void __launch_bounds__(256) row_norm_columns(const T* dy, const T* x, const W* mean, const W* rstd, W* partial, u64 rows, u64 n, u64 piece) {
    __shared__ W sums[2][8][33];
    u64 column = blockIdx.x * 32 + threadIdx.x;
    u64 first = blockIdx.y * piece, last = first + piece < rows ? first + piece : rows;
    W weight = 0, bias = 0;
    if (column < n) {
#pragma unroll 4
        for (u64 row = first + threadIdx.y; row < last; row += 8) {
            W g = convert<W>(dy[row * n + column]);
            W hat = (convert<W>(x[row * n + column]) - (RMS ? (W)0 : mean[row])) * rstd[row];
            weight += g * hat;
            bias += g;
        }
    }
    sums[0][threadIdx.y][threadIdx.x] = weight;
    sums[1][threadIdx.y][threadIdx.x] = bias;
    __syncthreads();
    if (threadIdx.y == 0 && column < n) {
        for (int i = 1; i < 8; i++) weight += sums[0][i][threadIdx.x], bias += sums[1][i][threadIdx.x];
        partial[(blockIdx.y * 2 + 0) * n + column] = weight;
        partial[(blockIdx.y * 2 + 1) * n + column] = bias;
    }
}
#endif

#ifdef COLUMNS_JOIN
extern "C" __global__ void row_norm_join(const W* partial, P* dweight, P* dbias, u64 n, u64 pieces) {
    u64 column = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (column >= n) return;
    W weight = 0, bias = 0;
    for (u64 i = 0; i < pieces; i++) weight += partial[i * 2 * n + column], bias += partial[(i * 2 + 1) * n + column];
    if (dweight) dweight[column] = convert<P>(weight);
    if (dbias) dbias[column] = convert<P>(bias);
}
#endif
