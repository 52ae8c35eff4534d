// Attention without a stored score matrix, for any dtype, head size, strides and mask: tiles of TILE queries by TILE
// keys in shared memory, arithmetic in W. The tensor-core kernels handle the shapes they support.

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

typedef Vec<W, 4> Four;

// Tile rows are padded with zeros to whole vectors of four, plus one vector: neighbouring rows are in different banks.
#define FOURS(width) ((u32)((width) + 3) / 4)
#define PADDED(width) ((FOURS(width) + 1) * 4)

// The remainder of a tile at the end.
__device__ inline u32 tile_rows(u64 first, u64 count) { return (u32)(count - first < TILE ? count - first : TILE); }

// A thread's elements of a matrix `width` columns wide, one after another.
#define EACH_OF(rows, width)                                                                                                            \
    for (u32 r = threadIdx.x / (u32)(width), c = threadIdx.x % (u32)(width), down_ = THREADS / (u32)(width), along_ = THREADS % (u32)(width); r < (rows); \
         r += down_ + (c + along_ >= (u32)(width)), c += along_, c -= c >= (u32)(width) ? (u32)(width) : 0u)

// Copies rows of a head from `first` on to a tile.
__device__ inline void load_tile(W* tile, const T* head, u64 row_stride, u64 column_stride, u64 first, u32 rows, u64 width) {
    head += first * row_stride;
    u32 padded = PADDED(width), filled = FOURS(width) * 4, down = THREADS / filled, along = THREADS % filled;
    u32 r = threadIdx.x / filled, c = threadIdx.x % filled;
    while (r < rows) {
        // Issue all loads before the first store: the compiler cannot reorder them, as the addresses may alias.
        const int AT_ONCE = 8;
        W some[AT_ONCE];
        u32 place[AT_ONCE];
        bool there[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            there[u] = r < rows;
            place[u] = r * padded + c;
            some[u] = there[u] && c < width ? convert<W>(head[r * row_stride + c * column_stride]) : (W)0;
            r += down + (c + along >= filled);
            c += along;
            c -= c >= filled ? filled : 0u;
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) if (there[u]) tile[place[u]] = some[u];
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

// The dropout factor of the score at (head, i, j).
__device__ inline W kept(const Spec& s, u64 head, u64 i, u64 j) {
#if DROPOUT
    u64 word = (head * s.l + i) * s.s + j;
    u32 w[4];
    philox_block(s.stream, word / 4, w);
    // An array indexed by a variable would not stay in registers.
    u32 mine = word % 4 == 0 ? w[0] : word % 4 == 1 ? w[1] : word % 4 == 2 ? w[2] : w[3];
    float u = (float)(mine >> 8) * (1.0f / 16777216.0f);
    return u >= (float)s.p ? (W)(1 / (1 - s.p)) : (W)0;
#else
    return 1;
#endif
}

// The sum over n of a(k_) * b[k_] at four columns, of tiles in shared memory.
#define SUM_OVER(n, a_k, b, width)                                                          \
    Four sum{{0, 0, 0, 0}};                                                                 \
    _Pragma("unroll 4") for (u32 k_ = 0; k_ < (n); k_++) {                                  \
        W factor = (a_k);                                                                   \
        Four four = *(const Four*)((b) + k_ * PADDED(width) + c * 4);                       \
        _Pragma("unroll") for (int e = 0; e < 4; e++) sum.v[e] += factor * four.v[e];       \
    }

// Up to four columns.
#define EACH_COLUMN(width) _Pragma("unroll") for (int e = 0; e < 4; e++) if (c * 4 + e < (u32)(width))

// scores[r][c] = a[r] . b[c]
#define DOTS(scores, a, b, width)                                                           \
    EACH_OF(rows, columns) {                                                                \
        const Four *one = (const Four*)((a) + r * PADDED(width)), *other = (const Four*)((b) + c * PADDED(width)); \
        Four sum{{0, 0, 0, 0}};                                                             \
        _Pragma("unroll 4") for (u32 k_ = 0; k_ < FOURS(width); k_++) {                     \
            Four x = one[k_], y = other[k_];                                                \
            _Pragma("unroll") for (int e = 0; e < 4; e++) sum.v[e] += x.v[e] * y.v[e];      \
        }                                                                                   \
        (scores)[r * TILE + c] = (sum.v[0] + sum.v[1]) + (sum.v[2] + sum.v[3]);             \
    }

#ifdef FORWARD
extern "C" __global__ void __launch_bounds__(THREADS) attention(Spec s, T* out, u64 o0, u64 o1, u64 o2, u64 o3, W* lse) {
    extern __shared__ Vec<double, 4> memory[];
    W* q = (W*)memory;
    W *k = q + TILE * PADDED(s.d), *v = k + TILE * PADDED(s.d), *acc = v + TILE * PADDED(s.dv), *p = acc + TILE * PADDED(s.dv);
    __shared__ W top[TILE], sum[TILE], correction[TILE];
    u64 h = blockIdx.y % s.heads, b = blockIdx.y / s.heads, kv = h / (s.heads / s.kv_heads), first = blockIdx.x * (u64)TILE;
    const T* kh = s.k + b * s.k_strides[0] + kv * s.k_strides[1];
    const T* vh = s.v + b * s.v_strides[0] + kv * s.v_strides[1];
    u32 rows = tile_rows(first, s.l), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    load_tile(q, s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], s.q_strides[3], first, rows, s.d);
    EACH_OF(rows, PADDED(s.dv)) acc[r * PADDED(s.dv) + c] = 0;
    if (threadIdx.x < TILE) top[threadIdx.x] = LOWEST, sum[threadIdx.x] = 0;
    u64 keys = CAUSAL && first + TILE < s.s ? first + TILE : s.s;
    for (u64 j = 0; j < keys; j += TILE) {
        u32 columns = tile_rows(j, s.s);
        __syncthreads();
        load_tile(k, kh, s.k_strides[2], s.k_strides[3], j, columns, s.d);
        load_tile(v, vh, s.v_strides[2], s.v_strides[3], j, columns, s.dv);
        __syncthreads();
        DOTS(p, q, k, s.d)
        __syncthreads();
        // A warp to a row, a lane to a key.
        for (u32 r = warp; r < rows; r += THREADS / 32) {
            W x = lane < columns ? score(s, b, h, first + r, j + lane, p[r * TILE + lane]) : LOWEST;
            W high = Largest::merge(top[r], group_reduce<Largest, 32>(x, (W*)0));
            // While every key is masked out, differences would be NaN.
            W base = high == LOWEST ? (W)0 : high, e = exponential(x - base), total = group_reduce<Sum, 32>(e, (W*)0);
            if (DROPOUT && e != 0) e *= kept(s, b * s.heads + h, first + r, j + lane);
            if (lane < columns) p[r * TILE + lane] = e;
            if (lane == 0) {
                correction[r] = exponential(top[r] - base);
                sum[r] = sum[r] * correction[r] + total;
                top[r] = high;
            }
            __syncwarp();
        }
        __syncthreads();
        EACH_OF(rows, FOURS(s.dv)) {
            SUM_OVER(columns, p[r * TILE + k_], v, s.dv)
            Four* to = (Four*)(acc + r * PADDED(s.dv) + c * 4);
#pragma unroll
            for (int e = 0; e < 4; e++) to->v[e] = to->v[e] * correction[r] + sum.v[e];
        }
    }
    __syncthreads();
    EACH_OF(rows, s.dv) {
        W y = sum[r] == 0 ? (W)0 : acc[r * PADDED(s.dv) + c] / sum[r];
        out[b * o0 + h * o1 + (first + r) * o2 + c * o3] = convert<T>(y);
    }
    if (threadIdx.x < rows) {
        u32 r = threadIdx.x;
        lse[blockIdx.y * s.l + first + r] = sum[r] == 0 ? LOWEST : top[r] + logarithm(sum[r]);
    }
}
#endif

#ifdef BACKWARD
struct Saved { const T *out, *dout; u64 out_strides[4], dout_strides[4]; const W* lse; };

// delta[row] = out . dout: the term that the derivative of softmax subtracts in a row.
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

__device__ inline void add(W* to, const Four& sum) {
#pragma unroll
    for (int e = 0; e < 4; e++) ((Four*)to)->v[e] += sum.v[e];
}

// Probabilities and the scores' gradients of a tile, from products of queries with keys (p) and of gradients with
// values (ds).
__device__ inline void differentiate(const Spec& s, u64 b, u64 h, u64 i0, u64 j0, u32 rows, u32 columns, const W* lse, const W* delta, W* p, W* ds) {
    EACH_OF(rows, columns) {
        u32 n = r * TILE + c;
        u64 i = i0 + r, j = j0 + c;
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
    extern __shared__ Vec<double, 4> memory[];
    W* q = (W*)memory;
    W *g = q + TILE * PADDED(s.d), *k = g + TILE * PADDED(s.dv), *v = k + TILE * PADDED(s.d), *acc = v + TILE * PADDED(s.dv), *p = acc + TILE * PADDED(s.d), *ds = p + TILE * TILE;
    u64 h = blockIdx.y % s.heads, b = blockIdx.y / s.heads, kv = h / (s.heads / s.kv_heads), first = blockIdx.x * (u64)TILE;
    u32 rows = tile_rows(first, s.l);
    load_tile(q, s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], s.q_strides[3], first, rows, s.d);
    load_tile(g, saved.dout + b * saved.dout_strides[0] + h * saved.dout_strides[1], saved.dout_strides[2], saved.dout_strides[3], first, rows, s.dv);
    EACH_OF(rows, PADDED(s.d)) acc[r * PADDED(s.d) + c] = 0;
    u64 keys = CAUSAL && first + TILE < s.s ? first + TILE : s.s;
    for (u64 j = 0; j < keys; j += TILE) {
        u32 columns = tile_rows(j, s.s);
        __syncthreads();
        load_tile(k, s.k + b * s.k_strides[0] + kv * s.k_strides[1], s.k_strides[2], s.k_strides[3], j, columns, s.d);
        load_tile(v, s.v + b * s.v_strides[0] + kv * s.v_strides[1], s.v_strides[2], s.v_strides[3], j, columns, s.dv);
        __syncthreads();
        DOTS(p, q, k, s.d)
        DOTS(ds, g, v, s.dv)
        __syncthreads();
        differentiate(s, b, h, first, j, rows, columns, saved.lse, delta, p, ds);
        __syncthreads();
        EACH_OF(rows, FOURS(s.d)) {
            SUM_OVER(columns, ds[r * TILE + k_], k, s.d)
            add(acc + r * PADDED(s.d) + c * 4, sum);
        }
    }
    __syncthreads();
    EACH_OF(rows, s.d) dq[(blockIdx.y * s.l + first + r) * s.d + c] = convert<T>(acc[r * PADDED(s.d) + c]);
}

extern "C" __global__ void __launch_bounds__(THREADS) attention_keys(Spec s, Saved saved, const W* delta, T* dk, T* dv) {
    extern __shared__ Vec<double, 4> memory[];
    W* q = (W*)memory;
    W *g = q + TILE * PADDED(s.d), *k = g + TILE * PADDED(s.dv), *v = k + TILE * PADDED(s.d), *acc_k = v + TILE * PADDED(s.dv), *acc_v = acc_k + TILE * PADDED(s.d), *p = acc_v + TILE * PADDED(s.dv), *ds = p + TILE * TILE;
    u64 kv = blockIdx.y % s.kv_heads, b = blockIdx.y / s.kv_heads, shared_by = s.heads / s.kv_heads, first = blockIdx.x * (u64)TILE;
    u32 columns = tile_rows(first, s.s);
    load_tile(k, s.k + b * s.k_strides[0] + kv * s.k_strides[1], s.k_strides[2], s.k_strides[3], first, columns, s.d);
    load_tile(v, s.v + b * s.v_strides[0] + kv * s.v_strides[1], s.v_strides[2], s.v_strides[3], first, columns, s.dv);
    EACH_OF(columns, PADDED(s.d)) acc_k[r * PADDED(s.d) + c] = 0;
    EACH_OF(columns, PADDED(s.dv)) acc_v[r * PADDED(s.dv) + c] = 0;
    for (u64 h = kv * shared_by; h < (kv + 1) * shared_by; h++) {
        for (u64 i = CAUSAL ? first : 0; i < s.l; i += TILE) {
            u32 rows = tile_rows(i, s.l);
            __syncthreads();
            load_tile(q, s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], s.q_strides[3], i, rows, s.d);
            load_tile(g, saved.dout + b * saved.dout_strides[0] + h * saved.dout_strides[1], saved.dout_strides[2], saved.dout_strides[3], i, rows, s.dv);
            __syncthreads();
            DOTS(p, q, k, s.d)
            DOTS(ds, g, v, s.dv)
            __syncthreads();
            differentiate(s, b, h, i, first, rows, columns, saved.lse, delta, p, ds);
            __syncthreads();
            EACH_OF(columns, FOURS(s.dv)) {
                SUM_OVER(rows, p[k_ * TILE + r], g, s.dv)
                add(acc_v + r * PADDED(s.dv) + c * 4, sum);
            }
            EACH_OF(columns, FOURS(s.d)) {
                SUM_OVER(rows, ds[k_ * TILE + r], q, s.d)
                add(acc_k + r * PADDED(s.d) + c * 4, sum);
            }
        }
    }
    __syncthreads();
    EACH_OF(columns, s.d) dk[(blockIdx.y * s.s + first + r) * s.d + c] = convert<T>(acc_k[r * PADDED(s.d) + c]);
    EACH_OF(columns, s.dv) dv[(blockIdx.y * s.s + first + r) * s.dv + c] = convert<T>(acc_v[r * PADDED(s.dv) + c]);
}
#endif

#ifdef SHORT
struct Saved { const T *out, *dout; u64 out_strides[4], dout_strides[4]; const W* lse; };

struct Grads { T *q, *k, *v; u64 q_strides[4], k_strides[4], v_strides[4]; };

// All gradients of a head whose queries and keys are one tile each.
extern "C" __global__ void __launch_bounds__(THREADS) attention_short(Spec s, Saved saved, Grads to) {
    extern __shared__ Vec<double, 4> memory[];
    __shared__ W p[TILE * TILE], ds[TILE * TILE];
    u32 rows = (u32)s.l, columns = (u32)s.s, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    W* q = (W*)memory;
    W *g = q + rows * PADDED(s.d), *k = g + rows * PADDED(s.dv), *v = k + columns * PADDED(s.d);
    u64 head = blockIdx.x, h = head % s.heads, b = head / s.heads;
    load_tile(q, s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], s.q_strides[3], 0, rows, s.d);
    load_tile(g, saved.dout + b * saved.dout_strides[0] + h * saved.dout_strides[1], saved.dout_strides[2], saved.dout_strides[3], 0, rows, s.dv);
    load_tile(k, s.k + b * s.k_strides[0] + h * s.k_strides[1], s.k_strides[2], s.k_strides[3], 0, columns, s.d);
    load_tile(v, s.v + b * s.v_strides[0] + h * s.v_strides[1], s.v_strides[2], s.v_strides[3], 0, columns, s.dv);
    __syncthreads();
    DOTS(p, q, k, s.d)
    DOTS(ds, g, v, s.dv)
    __syncthreads();
    for (u32 r = warp; r < rows; r += THREADS / 32) {
        W x = lane < columns ? score(s, b, h, r, lane, p[r * TILE + lane]) : LOWEST, prob = 0, factor = 0, d = 0;
        if (x != LOWEST) {
            prob = exponential(x - saved.lse[head * s.l + r]);
            factor = kept(s, head, r, lane);
            d = ds[r * TILE + lane] * factor;
        }
        // The term that the derivative of softmax subtracts in a row.
        W delta = group_reduce<Sum, 32>(prob * d, (W*)0);
        if (lane < columns) {
            p[r * TILE + lane] = prob * factor;
            ds[r * TILE + lane] = prob * (d - delta) * (W)s.scale;
        }
    }
    __syncthreads();
    EACH_OF(rows, FOURS(s.d)) {
        SUM_OVER(columns, ds[r * TILE + k_], k, s.d)
        EACH_COLUMN(s.d) to.q[b * to.q_strides[0] + h * to.q_strides[1] + r * to.q_strides[2] + (c * 4 + e) * to.q_strides[3]] = convert<T>(sum.v[e]);
    }
    EACH_OF(columns, FOURS(s.d)) {
        SUM_OVER(rows, ds[k_ * TILE + r], q, s.d)
        EACH_COLUMN(s.d) to.k[b * to.k_strides[0] + h * to.k_strides[1] + r * to.k_strides[2] + (c * 4 + e) * to.k_strides[3]] = convert<T>(sum.v[e]);
    }
    EACH_OF(columns, FOURS(s.dv)) {
        SUM_OVER(rows, p[k_ * TILE + r], g, s.dv)
        EACH_COLUMN(s.dv) to.v[b * to.v_strides[0] + h * to.v_strides[1] + r * to.v_strides[2] + (c * 4 + e) * to.v_strides[3]] = convert<T>(sum.v[e]);
    }
}
#endif

#ifdef PRODUCTS
// Scores of a row that a thread keeps in registers.
#define HELD 8

// A stripe of queries: all queries from `from` on, `rows` of each head, and their first `keys` keys.
struct Stripe { u64 head, from, rows, keys; };

// Converts the scores of a matrix product to probabilities in place, one block per row.
extern "C" __global__ void __launch_bounds__(128) attention_scores(Spec s, W* scores, W* lse, Stripe stripe) {
    __shared__ W shared[32];
    u64 head = stripe.head + blockIdx.x / stripe.rows, i = stripe.from + blockIdx.x % stripe.rows, h = head % s.heads, b = head / s.heads;
    u64 end = CAUSAL && i + 1 < stripe.keys ? i + 1 : stripe.keys;
    W* line = scores + blockIdx.x * stripe.keys;
    W top = LOWEST, sum = 0, held[HELD];
#pragma unroll
    for (int t = 0; t < HELD; t++) {
        u64 j = threadIdx.x + t * 128;
        held[t] = j < end ? line[j] : (W)0;
    }
#pragma unroll
    for (int t = 0; t < HELD; t++) {
        u64 j = threadIdx.x + t * 128;
        held[t] = j < end ? score(s, b, h, i, j, held[t]) : LOWEST;
        top = Largest::merge(top, held[t]);
    }
    for (u64 j = threadIdx.x + HELD * 128; j < end; j += 128) {
        W x = score(s, b, h, i, j, line[j]);
        line[j] = x;
        top = Largest::merge(top, x);
    }
    top = group_reduce<Largest, 128>(top, shared);
    W base = top == LOWEST ? (W)0 : top;
#pragma unroll
    for (int t = 0; t < HELD; t++) {
        held[t] = exponential(held[t] - base);
        sum += held[t];
    }
    for (u64 j = threadIdx.x + HELD * 128; j < end; j += 128) {
        W e = exponential(line[j] - base);
        line[j] = e;
        sum += e;
    }
    sum = group_reduce<Sum, 128>(sum, shared);
    W factor = sum == 0 ? (W)0 : 1 / sum;
#pragma unroll
    for (int t = 0; t < HELD; t++) {
        u64 j = threadIdx.x + t * 128;
        if (j < stripe.keys) line[j] = j < end ? held[t] * (DROPOUT ? factor * kept(s, head, i, j) : factor) : (W)0;
    }
    for (u64 j = threadIdx.x + HELD * 128; j < stripe.keys; j += 128) line[j] = j < end ? line[j] * (DROPOUT ? factor * kept(s, head, i, j) : factor) : (W)0;
    if (threadIdx.x == 0) lse[head * s.l + i] = sum == 0 ? LOWEST : top + logarithm(sum);
}

// The same in the backward pass: computes probabilities, and the scores' gradients from products of gradients with
// values.
extern "C" __global__ void __launch_bounds__(128) attention_scores_backward(Spec s, W* p, W* ds, const W* lse, const W* delta, Stripe stripe) {
    u64 head = stripe.head + blockIdx.x / stripe.rows, i = stripe.from + blockIdx.x % stripe.rows, h = head % s.heads, b = head / s.heads;
    u64 end = CAUSAL && i + 1 < stripe.keys ? i + 1 : stripe.keys;
    p += blockIdx.x * stripe.keys;
    ds += blockIdx.x * stripe.keys;
    W log_sum = lse[head * s.l + i], off = delta[head * s.l + i];
    for (u64 first = threadIdx.x; first < stripe.keys; first += 4 * 128) {
        // All loads before the first store: the compiler cannot reorder them.
        W dot[4], slope[4];
#pragma unroll
        for (int t = 0; t < 4; t++) {
            u64 j = first + t * 128;
            dot[t] = j < end ? p[j] : (W)0;
            slope[t] = j < end ? ds[j] : (W)0;
        }
#pragma unroll
        for (int t = 0; t < 4; t++) {
            u64 j = first + t * 128;
            if (j >= stripe.keys) break;
            W x = j < end ? score(s, b, h, i, j, dot[t]) : LOWEST, e = 0, d = 0;
            if (x != LOWEST) {
                W probability = exponential(x - log_sum), factor = kept(s, head, i, j);
                e = probability * factor;
                d = probability * (slope[t] * factor - off) * (W)s.scale;
            }
            p[j] = e;
            ds[j] = d;
        }
    }
}
#endif
