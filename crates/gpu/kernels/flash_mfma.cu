// Attention of half types by AMD's MFMA instructions, forward and backward, for wavefronts of 64 lanes.
//
// A product of 16 by 16 matrices takes four neighbours along the summed dimension from each lane of both operands
// (`Piece`), and leaves four neighbours down a column. So scores are computed transposed (rows are keys, columns
// queries), and a product's result in registers is the second operand of the next. D: head size rounded up to a
// multiple of 16. A block takes ROWS queries (forward, gradient by queries) or keys (gradient by keys and values) of
// one head, 16 per wavefront, and walks the other side in steps of STEP. No sum uses atomics.

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f
#define LOWEST ((float)-INFINITY)
#define WAVES 4
#define THREADS (WAVES * 64)
#define ROWS (WAVES * 16)
// Elements between rows of a tile, and of a transposed tile: no two of 16 rows begin in the same bank.
#define ROW (D + 4)
#define TURNED (STEP + 4)
#define PIECES (D / 16)

struct Spec {
    const T *q, *k, *v;
    const void* mask;
    u64 q_strides[4], k_strides[4], v_strides[4], mask_strides[4];
    u64 batch, heads, kv_heads, l, s, d, dv;
    double scale, p;
    Philox stream;
};

struct Saved { const T *out, *dout; u64 out_strides[4], dout_strides[4]; const float* lse; };
// A query's values for the gradients: the logarithm of its sum in units of log2, and out . dout.
struct Row { float log_sum, delta; };

typedef Vec<T, 4> Piece;

// c += a b: lane l has a[l % 16][4 (l / 16) + i], b[4 (l / 16) + i][l % 16] and c[4 (l / 16) + i][l % 16].
#ifdef EMULATED
#define multiply(sum, first, second) multiply_at(sum, first, second, __LINE__)
__device__ inline void multiply_at(float (&c)[4], const Piece& a, const Piece& b, int line) {
    float x[4], y[4];
    for (int i = 0; i < 4; i++) x[i] = plain(a.v[i]), y[i] = plain(b.v[i]);
    machine->mfma(x, y, c, line);
}
#else
typedef float Sums __attribute__((ext_vector_type(4)));
#if IS_BF16
typedef short Operand __attribute__((ext_vector_type(4)));
#define MFMA __builtin_amdgcn_mfma_f32_16x16x16bf16_1k
#else
typedef _Float16 Operand __attribute__((ext_vector_type(4)));
#define MFMA __builtin_amdgcn_mfma_f32_16x16x16f16
#endif
__device__ inline void multiply(float (&c)[4], const Piece& a, const Piece& b) {
    union { Piece piece; Operand operand; } x = {a}, y = {b};
    Sums sums = {c[0], c[1], c[2], c[3]};
    sums = MFMA(x.operand, y.operand, sums, 0, 0, 0);
    c[0] = sums[0], c[1] = sums[1], c[2] = sums[2], c[3] = sums[3];
}
#endif

// The sum or maximum of a column, whose other rows are in the lanes 16, 32 and 48 further on.
__device__ inline float column_sum(float x) {
    x += __shfl_xor(x, 16, 64);
    return x + __shfl_xor(x, 32, 64);
}
__device__ inline float column_top(float x) {
    x = fmaxf(x, __shfl_xor(x, 16, 64));
    return fmaxf(x, __shfl_xor(x, 32, 64));
}

__device__ inline Piece piece_at(const T* at) { return *(const Piece*)at; }
__device__ inline Piece rounded(const float (&x)[4]) {
    return Piece{{convert<T>(x[0]), convert<T>(x[1]), convert<T>(x[2]), convert<T>(x[3])}};
}

// This lane's pieces of a row; zeros beyond the end.
__device__ inline void load_row(Piece (&to)[PIECES], const T* from, u64 stride, int row, u64 count, u64 d, int part) {
#pragma unroll
    for (int c = 0; c < PIECES; c++) {
        u64 column = c * 16 + part * 4;
        to[c] = Piece{};
        if (row < (int)count && column < d) to[c] = piece_at(from + (u64)row * stride + column);
    }
}

// Copies rows from `first` on to shared memory, plain or transposed; zeros beyond the end.
template <bool AS_IS, bool TURN> __device__ inline void load_tile(T* rows, T* columns, const T* from, u64 stride, int first, u64 count, u64 d) {
    for (int n = threadIdx.x; n < STEP * (D / 8); n += THREADS) {
        int row = n / (D / 8), column = n % (D / 8) * 8;
        Vec<T, 8> x{};
        if (first + row < (int)count && column < (int)d) x = *(const Vec<T, 8>*)(from + (u64)(first + row) * stride + column);
        if (AS_IS) {
            *(Piece*)(rows + row * ROW + column) = Piece{{x.v[0], x.v[1], x.v[2], x.v[3]}};
            *(Piece*)(rows + row * ROW + column + 4) = Piece{{x.v[4], x.v[5], x.v[6], x.v[7]}};
        }
        if (TURN) {
#pragma unroll
            for (int j = 0; j < 8; j++) columns[(column + j) * TURNED + row] = x.v[j];
        }
    }
}

// The product of 16 rows of a tile, from `first` on, and a lane's row of the other side.
__device__ inline void row_products(float (&c)[4], const T* tile, int first, const Piece (&other)[PIECES], int column, int part) {
    c[0] = c[1] = c[2] = c[3] = 0;
#pragma unroll
    for (int n = 0; n < PIECES; n++) multiply(c, piece_at(tile + (first + column) * ROW + n * 16 + part * 4), other[n]);
}

// Adds the product of 16 rows of a transposed tile, from `first` on, and weights.
__device__ inline void add_products(float (&c)[4], const T* tile, int first, const Piece (&weights)[STEP / 16], int column, int part) {
#pragma unroll
    for (int n = 0; n < STEP / 16; n++) multiply(c, piece_at(tile + (first + column) * TURNED + n * 16 + part * 4), weights[n]);
}

// Writes four neighbours of a column, as halves, to a row of a tensor.
__device__ inline void store_piece(T* to, u64 stride, int row, u64 count, u64 column, u64 d, const float (&x)[4]) {
    if (row < (int)count && column < d) *(Piece*)(to + (u64)row * stride + column) = rounded(x);
}

// The score of query i and key j in units of log2, from their product.
__device__ inline float score(const Spec& s, u64 b, u64 h, int i, int j, float dot) {
    if (i >= (int)s.l || j >= (int)s.s || (CAUSAL && j > i)) return LOWEST;
    float x = dot * ((float)s.scale * LOG2E);
#if MASK
    u64 at = b * s.mask_strides[0] + h * s.mask_strides[1] + (u64)i * s.mask_strides[2] + (u64)j * s.mask_strides[3];
#if MASK == 1
    if (!((const u8*)s.mask)[at]) return LOWEST;
#else
    x += convert<float>(((const T*)s.mask)[at]) * LOG2E;
#endif
#endif
    return x;
}

// Dropout factors of the probabilities of four neighbours. `down` is the distance of their words: 1 for keys, the
// number of keys for queries.
__device__ inline void kept(float (&factor)[4], const Spec& s, u64 head, int i, int j, u64 down) {
#if DROPOUT
    u64 first = (head * s.l + (u64)i) * s.s + (u64)j, block = ~0ull;
    u32 words[4];
#pragma unroll 1
    for (int n = 0; n < 4; n++) {
        u64 word = first + n * down;
        if (word / 4 != block) philox_block(s.stream, block = word / 4, words);
        u32 at = (u32)word % 4, mine = at == 0 ? words[0] : at == 1 ? words[1] : at == 2 ? words[2] : words[3];
        float f = (float)(mine >> 8) * (1.0f / 16777216.0f) >= (float)s.p ? (float)(1 / (1 - s.p)) : 0.0f;
        if (n == 0) factor[0] = f;
        if (n == 1) factor[1] = f;
        if (n == 2) factor[2] = f;
        if (n == 3) factor[3] = f;
    }
#else
    factor[0] = factor[1] = factor[2] = factor[3] = 1;
#endif
}

// A lane's place, and the heads of its block.
#define PLACES                                                                                          \
    extern __shared__ double memory[];                                                                  \
    int lane = threadIdx.x % 64, wave = threadIdx.x / 64, column = lane % 16, part = lane / 16;         \
    u64 b = blockIdx.y / HEADS, h = blockIdx.y % HEADS;

#ifdef FORWARD
#define HEADS s.heads
extern "C" __global__ void __launch_bounds__(THREADS) mfma_forward(Spec s, T* out, u64 o0, u64 o1, u64 o2, float* lse) {
    PLACES
    T* keys = (T*)memory;
    T* values = keys + STEP * ROW;
    u64 head = blockIdx.y, kh = h / (s.heads / s.kv_heads);
    // Under a causal mask later queries see more keys, so they start first.
    int first = (int)(gridDim.x - 1 - blockIdx.x) * ROWS, start = first + wave * 16, row = start + column;
    int end = CAUSAL && first + ROWS < (int)s.s ? first + ROWS : (int)s.s;
    Piece q[PIECES];
    load_row(q, s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], row, s.l, s.d, part);
    float acc[PIECES][4] = {}, top = LOWEST, sum = 0;
    for (int at = 0; at < end; at += STEP) {
        __syncthreads();
        load_tile<true, false>(keys, keys, s.k + b * s.k_strides[0] + kh * s.k_strides[1], s.k_strides[2], at, s.s, s.d);
        load_tile<false, true>(values, values, s.v + b * s.v_strides[0] + kh * s.v_strides[1], s.v_strides[2], at, s.s, s.d);
        __syncthreads();
        if (CAUSAL && at > start + 15) continue;
        float p[STEP / 16][4], high = top;
#pragma unroll
        for (int f = 0; f < STEP / 16; f++) {
            row_products(p[f], keys, f * 16, q, column, part);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                p[f][i] = score(s, b, h, row, at + f * 16 + part * 4 + i, p[f][i]);
                high = fmaxf(high, p[f][i]);
            }
        }
        high = column_top(high);
        // As long as every key is masked out, differences would be NaN.
        float base = high == LOWEST ? 0.0f : high, correction = exp2_fast(top - base), total = 0;
        top = high;
        Piece weights[STEP / 16];
#pragma unroll
        for (int f = 0; f < STEP / 16; f++) {
            float factor[4];
            kept(factor, s, head, row, at + f * 16 + part * 4, 1);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float e = exp2_fast(p[f][i] - base);
                total += e;
                p[f][i] = e * factor[i];
            }
            weights[f] = rounded(p[f]);
        }
        sum = sum * correction + total;
#pragma unroll
        for (int c = 0; c < PIECES; c++) {
#pragma unroll
            for (int i = 0; i < 4; i++) acc[c][i] *= correction;
            add_products(acc[c], values, c * 16, weights, column, part);
        }
    }
    sum = column_sum(sum);
    float factor = sum == 0 ? 0.0f : 1 / sum;
    if (part == 0 && row < (int)s.l) lse[head * s.l + row] = sum == 0 ? LOWEST : top * LN2 + logf(sum);
#pragma unroll
    for (int c = 0; c < PIECES; c++) {
        float x[4] = {acc[c][0] * factor, acc[c][1] * factor, acc[c][2] * factor, acc[c][3] * factor};
        store_piece(out + b * o0 + h * o1, o2, row, s.l, c * 16 + part * 4, s.d, x);
    }
}
#endif

#ifdef QUERIES
#define HEADS s.heads
extern "C" __global__ void __launch_bounds__(THREADS) mfma_queries(Spec s, Saved saved, Row* rows, T* dq, u64 q0, u64 q1, u64 q2) {
    PLACES
    T* keys = (T*)memory;
    T* turned = keys + STEP * ROW;
    T* values = turned + D * TURNED;
    u64 head = blockIdx.y, kh = h / (s.heads / s.kv_heads);
    int first = (int)(gridDim.x - 1 - blockIdx.x) * ROWS, start = first + wave * 16, row = start + column;
    int end = CAUSAL && first + ROWS < (int)s.s ? first + ROWS : (int)s.s;
    Piece q[PIECES], dout[PIECES], out[PIECES];
    load_row(q, s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], row, s.l, s.d, part);
    load_row(dout, saved.dout + b * saved.dout_strides[0] + h * saved.dout_strides[1], saved.dout_strides[2], row, s.l, s.d, part);
    load_row(out, saved.out + b * saved.out_strides[0] + h * saved.out_strides[1], saved.out_strides[2], row, s.l, s.d, part);
    float delta = 0;
#pragma unroll
    for (int c = 0; c < PIECES; c++) {
#pragma unroll
        for (int i = 0; i < 4; i++) delta += plain(out[c].v[i]) * plain(dout[c].v[i]);
    }
    delta = column_sum(delta);
    // A row that saw no key gets probabilities of zero.
    float log_sum = (float)INFINITY;
    if (row < (int)s.l) {
        float lse = saved.lse[head * s.l + row];
        if (lse != LOWEST) log_sum = lse * LOG2E;
        if (part == 0) rows[head * s.l + row] = Row{log_sum, delta};
    }
    float acc[PIECES][4] = {};
    for (int at = 0; at < end; at += STEP) {
        __syncthreads();
        load_tile<true, true>(keys, turned, s.k + b * s.k_strides[0] + kh * s.k_strides[1], s.k_strides[2], at, s.s, s.d);
        load_tile<true, false>(values, values, s.v + b * s.v_strides[0] + kh * s.v_strides[1], s.v_strides[2], at, s.s, s.d);
        __syncthreads();
        if (CAUSAL && at > start + 15) continue;
        Piece weights[STEP / 16];
#pragma unroll
        for (int f = 0; f < STEP / 16; f++) {
            float p[4], dp[4], factor[4];
            row_products(p, keys, f * 16, q, column, part);
            row_products(dp, values, f * 16, dout, column, part);
            kept(factor, s, head, row, at + f * 16 + part * 4, 1);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float e = exp2_fast(score(s, b, h, row, at + f * 16 + part * 4 + i, p[i]) - log_sum);
                p[i] = e * (dp[i] * factor[i] - delta) * (float)s.scale;
            }
            weights[f] = rounded(p);
        }
#pragma unroll
        for (int c = 0; c < PIECES; c++) add_products(acc[c], turned, c * 16, weights, column, part);
    }
#pragma unroll
    for (int c = 0; c < PIECES; c++) store_piece(dq + b * q0 + h * q1, q2, row, s.l, c * 16 + part * 4, s.d, acc[c]);
}
#endif

#ifdef KEYS
#define HEADS s.kv_heads
extern "C" __global__ void __launch_bounds__(THREADS) mfma_keys(Spec s, Saved saved, const Row* rows, T* dk, T* dv, u64 k0, u64 k1, u64 k2, u64 v0, u64 v1, u64 v2) {
    PLACES
    T* queries = (T*)memory;
    T* turned = queries + STEP * ROW;
    T* douts = turned + D * TURNED;
    T* turned_douts = douts + STEP * ROW;
    Row* of_step = (Row*)(turned_douts + D * TURNED);
    int first = (int)blockIdx.x * ROWS, start = first + wave * 16, key = start + column;
    Piece k[PIECES], v[PIECES];
    load_row(k, s.k + b * s.k_strides[0] + h * s.k_strides[1], s.k_strides[2], key, s.s, s.d, part);
    load_row(v, s.v + b * s.v_strides[0] + h * s.v_strides[1], s.v_strides[2], key, s.s, s.d, part);
    float to_k[PIECES][4] = {}, to_v[PIECES][4] = {};
    u64 shared_by = s.heads / s.kv_heads;
    // Under a causal mask earlier queries do not see these keys.
    int begin = CAUSAL ? first / STEP * STEP : 0;
    for (u64 g = 0; g < shared_by; g++) {
        u64 qh = h * shared_by + g, head = b * s.heads + qh;
        for (int at = begin; at < (int)s.l; at += STEP) {
            __syncthreads();
            load_tile<true, true>(queries, turned, s.q + b * s.q_strides[0] + qh * s.q_strides[1], s.q_strides[2], at, s.l, s.d);
            load_tile<true, true>(douts, turned_douts, saved.dout + b * saved.dout_strides[0] + qh * saved.dout_strides[1], saved.dout_strides[2], at, s.l, s.d);
            for (int n = threadIdx.x; n < STEP; n += THREADS) of_step[n] = at + n < (int)s.l ? rows[head * s.l + at + n] : Row{(float)INFINITY, 0};
            __syncthreads();
            if (CAUSAL && at + STEP <= start) continue;
            Piece probabilities[STEP / 16], weights[STEP / 16];
#pragma unroll
            for (int f = 0; f < STEP / 16; f++) {
                float p[4], dp[4], factor[4];
                row_products(p, queries, f * 16, k, column, part);
                row_products(dp, douts, f * 16, v, column, part);
                kept(factor, s, head, at + f * 16 + part * 4, key, s.s);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    Row of = of_step[f * 16 + part * 4 + i];
                    float e = exp2_fast(score(s, b, qh, at + f * 16 + part * 4 + i, key, p[i]) - of.log_sum);
                    dp[i] = e * (dp[i] * factor[i] - of.delta) * (float)s.scale;
                    p[i] = e * factor[i];
                }
                probabilities[f] = rounded(p);
                weights[f] = rounded(dp);
            }
#pragma unroll
            for (int c = 0; c < PIECES; c++) {
                add_products(to_v[c], turned_douts, c * 16, probabilities, column, part);
                add_products(to_k[c], turned, c * 16, weights, column, part);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < PIECES; c++) {
        store_piece(dk + b * k0 + h * k1, k2, key, s.s, c * 16 + part * 4, s.d, to_k[c]);
        store_piece(dv + b * v0 + h * v1, v2, key, s.s, c * 16 + part * 4, s.d, to_v[c]);
    }
}
#endif
