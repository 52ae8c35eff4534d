// Attention without a stored score matrix, for any dtype, head size, strides and mask: tiles of TILE queries by TILE keys in shared
// memory, arithmetic in W. The tensor-core kernels take over what they can.

struct Spec {
    const T *q, *k, *v;
    const void* mask;
    u64 q_strides[4], k_strides[4], v_strides[4], mask_strides[4];
    u64 batch, heads, kv_heads, l, s, d, dv;
    double scale, p;
    Philox stream;
};

#define THREADS 256
#define LOWEST ((W)-INFINITY)
__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline double logarithm(double x) { return log(x); }

// Rows of tiles are one element longer than they need be: neighbouring rows then lie in different banks.
#define PADDED(width) ((width) + 1)

// Rows `first..` of a head, `count` of them there, to a tile; the rest is zero.
__device__ inline void load_tile(W* tile, const T* head, u64 row_stride, u64 column_stride, u64 first, u64 count, u64 width) {
    for (u64 i = threadIdx.x; i < TILE * width; i += THREADS) {
        u64 r = i / width, c = i % width;
        tile[r * PADDED(width) + c] = first + r < count ? convert<W>(head[(first + r) * row_stride + c * column_stride]) : (W)0;
    }
}

// The score of query i and key j from their product.
__device__ inline W score(const Spec& s, u64 b, u64 h, u64 i, u64 j, W dot) {
    if (i >= s.l || j >= s.s) return LOWEST;
    if (CAUSAL && j > i) return LOWEST;
    W x = dot * (W)s.scale;
#if MASK
    u64 at = b * s.mask_strides[0] + h * s.mask_strides[1] + i * s.mask_strides[2] + j * s.mask_strides[3];
#if MASK == 1
    if (!((const u8*)s.mask)[at]) return LOWEST;
#else
    x += convert<W>(((const T*)s.mask)[at]);
#endif
#endif
    return x;
}

// What dropout makes of a probability: the factor of the score at (head, i, j).
__device__ inline W kept(const Spec& s, u64 head, u64 i, u64 j) {
#if DROPOUT
    u64 word = (head * s.l + i) * s.s + j;
    u32 w[4];
    philox_block(s.stream, word / 4, w);
    float u = (float)(w[word % 4] >> 8) * (1.0f / 16777216.0f);
    return u >= (float)s.p ? (W)(1 / (1 - s.p)) : (W)0;
#else
    return 1;
#endif
}

// out[r][c] += sum over k_ of a(r, k_) * b[k_][c], for tiles in shared memory.
#define ACCUMULATE(out, width, a_rk, b_k)                                             \
    for (u64 i = threadIdx.x; i < TILE * (width); i += THREADS) {                     \
        u64 r = i / (width), c = i % (width);                                         \
        W sum = 0;                                                                    \
        _Pragma("unroll") for (int k_ = 0; k_ < TILE; k_++) sum += (a_rk) * (b_k)[k_ * PADDED(width) + c]; \
        (out)[i] += sum;                                                              \
    }

// scores[r][c] = a[r] . b[c]
#define DOTS(scores, a, b, width)                                                     \
    for (u32 i = threadIdx.x; i < TILE * TILE; i += THREADS) {                        \
        u32 r = i / TILE, c = i % TILE;                                               \
        W sum = 0;                                                                    \
        for (u64 k_ = 0; k_ < (width); k_++) sum += (a)[r * PADDED(width) + k_] * (b)[c * PADDED(width) + k_]; \
        (scores)[i] = sum;                                                            \
    }

#ifdef FORWARD
extern "C" __global__ void __launch_bounds__(THREADS) attention(Spec s, T* out, u64 o0, u64 o1, u64 o2, u64 o3, W* lse) {
    extern __shared__ double memory[];
    W* q = (W*)memory;
    W *k = q + TILE * PADDED(s.d), *v = k + TILE * PADDED(s.d), *acc = v + TILE * PADDED(s.dv), *p = acc + TILE * s.dv;
    __shared__ W top[TILE], sum[TILE], correction[TILE];
    u64 h = blockIdx.y % s.heads, b = blockIdx.y / s.heads, kv = h / (s.heads / s.kv_heads), first = blockIdx.x * (u64)TILE;
    const T* kh = s.k + b * s.k_strides[0] + kv * s.k_strides[1];
    const T* vh = s.v + b * s.v_strides[0] + kv * s.v_strides[1];
    load_tile(q, s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], s.q_strides[3], first, s.l, s.d);
    for (u64 i = threadIdx.x; i < TILE * s.dv; i += THREADS) acc[i] = 0;
    if (threadIdx.x < TILE) top[threadIdx.x] = LOWEST, sum[threadIdx.x] = 0;
    u64 keys = CAUSAL && first + TILE < s.s ? first + TILE : s.s;
    for (u64 j = 0; j < keys; j += TILE) {
        __syncthreads();
        load_tile(k, kh, s.k_strides[2], s.k_strides[3], j, s.s, s.d);
        load_tile(v, vh, s.v_strides[2], s.v_strides[3], j, s.s, s.dv);
        __syncthreads();
        DOTS(p, q, k, s.d)
        __syncthreads();
        if (threadIdx.x < TILE) {
            u32 r = threadIdx.x;
            W high = top[r];
            for (int c = 0; c < TILE; c++) {
                W x = score(s, b, h, first + r, j + c, p[r * TILE + c]);
                p[r * TILE + c] = x;
                high = Largest::merge(high, x);
            }
            // While every key is masked out, differences would be NaN.
            W base = high == LOWEST ? (W)0 : high, total = 0;
            for (int c = 0; c < TILE; c++) {
                W e = exponential(p[r * TILE + c] - base);
                total += e;
                if (DROPOUT && e != 0) e *= kept(s, b * s.heads + h, first + r, j + c);
                p[r * TILE + c] = e;
            }
            correction[r] = exponential(top[r] - base);
            sum[r] = sum[r] * correction[r] + total;
            top[r] = high;
        }
        __syncthreads();
        for (u64 i = threadIdx.x; i < TILE * s.dv; i += THREADS) acc[i] *= correction[i / s.dv];
        ACCUMULATE(acc, s.dv, p[r * TILE + k_], v)
    }
    __syncthreads();
    for (u64 i = threadIdx.x; i < TILE * s.dv; i += THREADS) {
        u64 r = i / s.dv, c = i % s.dv;
        if (first + r < s.l) {
            W y = sum[r] == 0 ? (W)0 : acc[i] / sum[r];
            out[b * o0 + h * o1 + (first + r) * o2 + c * o3] = convert<T>(y);
        }
    }
    if (threadIdx.x < TILE && first + threadIdx.x < s.l) {
        u32 r = threadIdx.x;
        lse[blockIdx.y * s.l + first + r] = sum[r] == 0 ? LOWEST : top[r] + logarithm(sum[r]);
    }
}
#endif

#ifdef BACKWARD
struct Saved { const T *out, *dout; u64 out_strides[4], dout_strides[4]; const W* lse; };

// delta[row] = out . dout: what the softmax's derivative takes off every term of a row.
extern "C" __global__ void attention_delta(Spec s, Saved saved, W* delta) {
    u64 row = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / 32;
    if (row >= s.batch * s.heads * s.l) return;
    u64 i = row % s.l, h = row / s.l % s.heads, b = row / (s.l * s.heads);
    const T* o = saved.out + b * saved.out_strides[0] + h * saved.out_strides[1] + i * saved.out_strides[2];
    const T* g = saved.dout + b * saved.dout_strides[0] + h * saved.dout_strides[1] + i * saved.dout_strides[2];
    W sum = 0;
    for (u64 c = threadIdx.x % 32; c < s.dv; c += 32) sum += convert<W>(o[c * saved.out_strides[3]]) * convert<W>(g[c * saved.dout_strides[3]]);
    sum = group_reduce<Sum, 32>(sum, (W*)0);
    if (threadIdx.x % 32 == 0) delta[row] = sum;
}

// Probabilities and the scores' gradients of a tile, from products of queries with keys (p) and of gradients with values (ds).
__device__ inline void differentiate(const Spec& s, u64 b, u64 h, u64 i0, u64 j0, const W* lse, const W* delta, W* p, W* ds) {
    for (u32 n = threadIdx.x; n < TILE * TILE; n += THREADS) {
        u64 i = i0 + n / TILE, j = j0 + n % TILE;
        W x = score(s, b, h, i, j, p[n]);
        W e = 0, d = 0;
        if (x != LOWEST) {
            u64 row = (b * s.heads + h) * s.l + i;
            W prob = exponential(x - lse[row]), factor = kept(s, b * s.heads + h, i, j);
            e = prob * factor;
            d = prob * (ds[n] * factor - delta[row]) * (W)s.scale;
        }
        p[n] = e;
        ds[n] = d;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) attention_queries(Spec s, Saved saved, const W* delta, T* dq) {
    extern __shared__ double memory[];
    W* q = (W*)memory;
    W *g = q + TILE * PADDED(s.d), *k = g + TILE * PADDED(s.dv), *v = k + TILE * PADDED(s.d), *acc = v + TILE * PADDED(s.dv), *p = acc + TILE * s.d, *ds = p + TILE * TILE;
    u64 h = blockIdx.y % s.heads, b = blockIdx.y / s.heads, kv = h / (s.heads / s.kv_heads), first = blockIdx.x * (u64)TILE;
    load_tile(q, s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], s.q_strides[3], first, s.l, s.d);
    load_tile(g, saved.dout + b * saved.dout_strides[0] + h * saved.dout_strides[1], saved.dout_strides[2], saved.dout_strides[3], first, s.l, s.dv);
    for (u64 i = threadIdx.x; i < TILE * s.d; i += THREADS) acc[i] = 0;
    u64 keys = CAUSAL && first + TILE < s.s ? first + TILE : s.s;
    for (u64 j = 0; j < keys; j += TILE) {
        __syncthreads();
        load_tile(k, s.k + b * s.k_strides[0] + kv * s.k_strides[1], s.k_strides[2], s.k_strides[3], j, s.s, s.d);
        load_tile(v, s.v + b * s.v_strides[0] + kv * s.v_strides[1], s.v_strides[2], s.v_strides[3], j, s.s, s.dv);
        __syncthreads();
        DOTS(p, q, k, s.d)
        DOTS(ds, g, v, s.dv)
        __syncthreads();
        differentiate(s, b, h, first, j, saved.lse, delta, p, ds);
        __syncthreads();
        ACCUMULATE(acc, s.d, ds[r * TILE + k_], k)
    }
    __syncthreads();
    for (u64 i = threadIdx.x; i < TILE * s.d; i += THREADS)
        if (first + i / s.d < s.l) dq[(blockIdx.y * s.l + first) * s.d + i] = convert<T>(acc[i]);
}

extern "C" __global__ void __launch_bounds__(THREADS) attention_keys(Spec s, Saved saved, const W* delta, T* dk, T* dv) {
    extern __shared__ double memory[];
    W* q = (W*)memory;
    W *g = q + TILE * PADDED(s.d), *k = g + TILE * PADDED(s.dv), *v = k + TILE * PADDED(s.d), *acc_k = v + TILE * PADDED(s.dv), *acc_v = acc_k + TILE * s.d, *p = acc_v + TILE * s.dv, *ds = p + TILE * TILE;
    u64 kv = blockIdx.y % s.kv_heads, b = blockIdx.y / s.kv_heads, shared_by = s.heads / s.kv_heads, first = blockIdx.x * (u64)TILE;
    load_tile(k, s.k + b * s.k_strides[0] + kv * s.k_strides[1], s.k_strides[2], s.k_strides[3], first, s.s, s.d);
    load_tile(v, s.v + b * s.v_strides[0] + kv * s.v_strides[1], s.v_strides[2], s.v_strides[3], first, s.s, s.dv);
    for (u64 i = threadIdx.x; i < TILE * s.d; i += THREADS) acc_k[i] = 0;
    for (u64 i = threadIdx.x; i < TILE * s.dv; i += THREADS) acc_v[i] = 0;
    for (u64 h = kv * shared_by; h < (kv + 1) * shared_by; h++) {
        for (u64 i = CAUSAL ? first : 0; i < s.l; i += TILE) {
            __syncthreads();
            load_tile(q, s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], s.q_strides[3], i, s.l, s.d);
            load_tile(g, saved.dout + b * saved.dout_strides[0] + h * saved.dout_strides[1], saved.dout_strides[2], saved.dout_strides[3], i, s.l, s.dv);
            __syncthreads();
            DOTS(p, q, k, s.d)
            DOTS(ds, g, v, s.dv)
            __syncthreads();
            differentiate(s, b, h, i, first, saved.lse, delta, p, ds);
            __syncthreads();
            ACCUMULATE(acc_v, s.dv, p[k_ * TILE + r], g)
            ACCUMULATE(acc_k, s.d, ds[k_ * TILE + r], q)
        }
    }
    __syncthreads();
    for (u64 i = threadIdx.x; i < TILE * s.d; i += THREADS)
        if (first + i / s.d < s.s) dk[(blockIdx.y * s.s + first) * s.d + i] = convert<T>(acc_k[i]);
    for (u64 i = threadIdx.x; i < TILE * s.dv; i += THREADS)
        if (first + i / s.dv < s.s) dv[(blockIdx.y * s.s + first) * s.dv + i] = convert<T>(acc_v[i]);
}
#endif

#ifdef PRODUCTS
// Scores that a matrix product left, a block per row: to probabilities, in place.
extern "C" __global__ void __launch_bounds__(128) attention_scores(Spec s, W* scores, W* lse, u64 start) {
    __shared__ W shared[32];
    u64 row = start + blockIdx.x, i = row % s.l, h = row / s.l % s.heads, b = row / (s.l * s.heads);
    W* line = scores + blockIdx.x * s.s;
    W top = LOWEST, sum = 0;
    for (u64 j = threadIdx.x; j < s.s; j += 128) {
        W x = score(s, b, h, i, j, line[j]);
        line[j] = x;
        top = Largest::merge(top, x);
    }
    top = group_reduce<Largest, 128>(top, shared);
    W base = top == LOWEST ? (W)0 : top;
    for (u64 j = threadIdx.x; j < s.s; j += 128) {
        W e = exponential(line[j] - base);
        line[j] = e;
        sum += e;
    }
    sum = group_reduce<Sum, 128>(sum, shared);
    W factor = sum == 0 ? (W)0 : 1 / sum;
    for (u64 j = threadIdx.x; j < s.s; j += 128) line[j] *= DROPOUT ? factor * kept(s, b * s.heads + h, i, j) : factor;
    if (threadIdx.x == 0) lse[row] = sum == 0 ? LOWEST : top + logarithm(sum);
}

// The same in the backward pass: probabilities, and the scores' gradients from products of gradients with values.
extern "C" __global__ void __launch_bounds__(128) attention_scores_backward(Spec s, W* p, W* ds, const W* lse, const W* delta, u64 start) {
    u64 row = start + blockIdx.x, i = row % s.l, h = row / s.l % s.heads, b = row / (s.l * s.heads);
    p += blockIdx.x * s.s;
    ds += blockIdx.x * s.s;
    W log_sum = lse[row], off = delta[row];
    for (u64 j = threadIdx.x; j < s.s; j += 128) {
        W x = score(s, b, h, i, j, p[j]), e = 0, d = 0;
        if (x != LOWEST) {
            W probability = exponential(x - log_sum), factor = kept(s, b * s.heads + h, i, j);
            e = probability * factor;
            d = probability * (ds[j] * factor - off) * (W)s.scale;
        }
        p[j] = e;
        ds[j] = d;
    }
}
#endif
