// Layer norm and RMS norm: rows normalised by their own statistics, scaled and shifted by column.
// Types: T of elements, W of statistics, P of parameters, L a lower dtype for an optional second copy of the result, G
// of incoming gradients.
// ROW kernels split rows as softmax does; COLUMNS kernels sum over rows for the parameters' gradients.

__device__ inline float inverse_root(float x) { return 1 / sqrtf(x); }
__device__ inline double inverse_root(double x) { return 1 / sqrt(x); }

#ifdef ROW
typedef Vec<T, LANES> V;
typedef Vec<G, LANES> VG;

__device__ inline void lowered(const V& value, L* row, u32 at) {
    Vec<L, LANES> out;
#pragma unroll
    for (int l = 0; l < LANES; l++) out.v[l] = convert<L>(value.v[l]);
    ((Vec<L, LANES>*)row)[at] = out;
}

extern "C" __global__ void __launch_bounds__(TPR < 128 ? 128 : TPR) row_norm(const T* x, const P* weight, const P* bias, T* y, L* low, W* mean, W* rstd, u64 rows, u64 n, double eps) {
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
        if (low) lowered(out, low + row * n, at);
    )
    if (lane == 0) {
        if (!RMS) mean[row] = middle;
        rstd[row] = scale;
    }
}

extern "C" __global__ void __launch_bounds__(TPR < 128 ? 128 : TPR) row_norm_backward(const G* dy, const T* x, const P* weight, const W* mean, const W* rstd, const T* so_far, T* dx, L* low, u64 rows, u64 n) {
    __shared__ W shared[32];
    u64 row = blockIdx.x * (u64)(blockDim.x / TPR) + threadIdx.x / TPR;
    u32 lane = threadIdx.x % TPR, vectors = (u32)(n / LANES);
    if (row >= rows) return;
    x += row * n;
    dy += row * n;
    W middle = RMS ? (W)0 : mean[row], scale = rstd[row];
    W plain = 0, along = 0;
#if STEPS > 0
    VG a[STEPS];
    V b[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        if (lane + s * TPR < vectors) a[s] = ((const VG*)dy)[lane + s * TPR], b[s] = ((const V*)x)[lane + s * TPR];
    }
#define PAIRS(body)                                           \
    _Pragma("unroll") for (int s = 0; s < STEPS; s++) {       \
        u32 at = lane + s * TPR;                              \
        if (at < vectors) {                                   \
            VG& g = a[s];                                     \
            V& h = b[s];                                      \
            body                                              \
        }                                                     \
    }
#else
#define PAIRS(body)                                           \
    for (u32 at = lane; at < vectors; at += TPR) {            \
        VG g = ((const VG*)dy)[at];                           \
        V h = ((const V*)x)[at];                              \
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
        if (so_far) out = ((const V*)(so_far + row * n))[at];
        _Pragma("unroll") for (int l = 0; l < LANES; l++) {
            TERMS
            W e = (d - plain - hat * along) * scale;
            out.v[l] = convert<T>(so_far ? e + convert<W>(out.v[l]) : e);
        }
        if (dx) ((V*)(dx + row * n))[at] = out;
        if (low) lowered(out, low + row * n, at);
    )
}

#if STEPS > 0
struct Two { W a, b; };
struct SumTwo { static __device__ Two merge(Two x, Two y) { return Two{x.a + y.a, x.b + y.b}; } };

// All gradients in one pass: a thread has the same columns in every row and keeps sums for the parameters' gradients.
// Each block writes one line of partial sums for both parameters, [gridDim.x][2][n].
extern "C" __global__ void __launch_bounds__(TPR < 128 ? 128 : TPR) row_norm_gradients(const G* dy, const T* x, const P* weight, const W* mean, const W* rstd, const T* so_far, T* dx, L* low, W* partial, u64 rows, u64 n) {
    const int GROUPS = TPR < 128 ? 128 / TPR : 1;
    __shared__ Two shared[32];
    __shared__ Vec<W, LANES> sums[GROUPS > 1 ? 128 : 1];
    u32 lane = threadIdx.x % TPR, vectors = (u32)(n / LANES);
    W factor[STEPS][LANES], to_weight[STEPS][LANES], to_bias[STEPS][LANES];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            u32 column = (lane + s * TPR) * LANES + l;
            factor[s][l] = weight && column < n ? convert<W>(weight[column]) : (W)1;
            to_weight[s][l] = 0, to_bias[s][l] = 0;
        }
    }
    for (u64 row = blockIdx.x * (u64)GROUPS + threadIdx.x / TPR; row < rows; row += gridDim.x * (u64)GROUPS) {
        VG a[STEPS];
        V b[STEPS], c[STEPS];
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            u32 at = lane + s * TPR;
            if (at < vectors) a[s] = ((const VG*)(dy + row * n))[at], b[s] = ((const V*)(x + row * n))[at];
            if (so_far && at < vectors) c[s] = ((const V*)(so_far + row * n))[at];
        }
        W middle = RMS ? (W)0 : mean[row], scale = rstd[row];
        Two all{0, 0};
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            if (lane + s * TPR < vectors) {
#pragma unroll
                for (int l = 0; l < LANES; l++) {
                    W g = convert<W>(a[s].v[l]), hat = (convert<W>(b[s].v[l]) - middle) * scale;
                    to_weight[s][l] += g * hat;
                    to_bias[s][l] += g;
                    all.a += g * factor[s][l];
                    all.b += g * factor[s][l] * hat;
                }
            }
        }
        all = group_reduce<SumTwo, TPR>(all, shared);
        W plain_mean = RMS ? (W)0 : all.a / (W)n, along = all.b / (W)n;
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            u32 at = lane + s * TPR;
            if (at < vectors) {
                V out;
#pragma unroll
                for (int l = 0; l < LANES; l++) {
                    W hat = (convert<W>(b[s].v[l]) - middle) * scale;
                    W e = (convert<W>(a[s].v[l]) * factor[s][l] - plain_mean - hat * along) * scale;
                    out.v[l] = convert<T>(so_far ? e + convert<W>(c[s].v[l]) : e);
                }
                if (dx) ((V*)(dx + row * n))[at] = out;
                if (low) lowered(out, low + row * n, at);
            }
        }
    }
    // Joins the groups' rows in order.
#pragma unroll
    for (int which = 0; which < 2; which++) {
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            Vec<W, LANES> mine;
#pragma unroll
            for (int l = 0; l < LANES; l++) mine.v[l] = which ? to_bias[s][l] : to_weight[s][l];
            if (GROUPS > 1) {
                __syncthreads();
                sums[threadIdx.x] = mine;
                __syncthreads();
                for (int g = 1; g < GROUPS && threadIdx.x < TPR; g++) {
#pragma unroll
                    for (int l = 0; l < LANES; l++) mine.v[l] += sums[g * TPR + lane].v[l];
                }
            }
            u32 at = lane + s * TPR;
            if (threadIdx.x < TPR && at < vectors) *(Vec<W, LANES>*)(partial + (blockIdx.x * 2 + which) * n + at * LANES) = mine;
        }
    }
}
#endif
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
// 8 columns, a sector of memory, by 128 rows of threads.
extern "C" __global__ void __launch_bounds__(1024) row_norm_join(const W* partial, P* dweight, P* dbias, u64 n, u64 pieces) {
    __shared__ W sums[128][8];
    u64 column = blockIdx.x * 8 + threadIdx.x;
    P* to = blockIdx.y ? dbias : dweight;
    if (!to) return;
    W sum = 0;
    if (column < n) {
#pragma unroll 8
        for (u64 i = threadIdx.y; i < pieces; i += 128) sum += partial[(i * 2 + blockIdx.y) * n + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    for (u32 half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) sums[threadIdx.y][threadIdx.x] = sum += sums[threadIdx.y + half][threadIdx.x];
    }
    if (threadIdx.y == 0 && column < n) to[column] = convert<P>(sum);
}
#endif
