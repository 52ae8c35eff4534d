// Attention on tensor cores, forward and backward, for half types.
//
// D: head size rounded up to 32, 64, 96 or 128. A block takes BLOCK_ROWS queries (forward, gradient by queries) or keys (gradient by keys and
// values) of one head, 16 * TILES per warp, and walks the other side in steps of STEP. Scores never leave registers: the accumulators of one product have
// the layout that the next one's first operand needs. Nothing is added by atomics, so results do not depend on timing.
// The text of tensor_cores.cu, with the products, goes before this one.

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f
#define LOWEST ((float)-INFINITY)

struct Spec {
    const T *q, *k, *v;
    const void* mask;
    u64 q_strides[4], k_strides[4], v_strides[4], mask_strides[4];
    u64 batch, heads, kv_heads, l, s, d, dv;
    double scale, p;
    Philox stream;
};

struct Saved { const T *out, *dout; u64 out_strides[4], dout_strides[4]; const float* lse; };

// The score of query i and key j in units of log2, from their product times the scale.
__device__ inline float masked(const Spec& s, u64 b, u64 h, int i, int j, float x) {
    if (j >= (int)s.s || i >= (int)s.l || (CAUSAL && j > i)) return LOWEST;
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

// What dropout makes of a probability.
__device__ inline float kept(const Spec& s, u64 head, int i, int j) {
#if DROPOUT
    u64 word = (head * s.l + (u64)i) * s.s + (u64)j;
    u32 w[4];
    philox_block(s.stream, word / 4, w);
    u32 mine = word % 4 == 0 ? w[0] : word % 4 == 1 ? w[1] : word % 4 == 2 ? w[2] : w[3];
    return (float)(mine >> 8) * (1.0f / 16777216.0f) >= (float)s.p ? (float)(1 / (1 - s.p)) : 0.0f;
#else
    return 1;
#endif
}

// Rows of a warp's accumulators, as halves, to rows `first..` of a tensor.
__device__ inline void store_rows(const float (&acc)[D / 8][4], float low, float high, T* to, u64 stride, int first, int count, int d) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        int c = n * 8 + t * 2;
        if (c < d) {
            if (first + g < count) *(u32*)(to + (u64)(first + g) * stride + c) = packed(acc[n][0] * low, acc[n][1] * low);
            if (first + g + 8 < count) *(u32*)(to + (u64)(first + g + 8) * stride + c) = packed(acc[n][2] * high, acc[n][3] * high);
        }
    }
}

// Two steps are in memory at a time, two tiles each.
#define STAGE(n, which) (steps_at + (((n) % 2) * 2 + (which)) * (STEP * ROW))

#ifdef FORWARD
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash(Spec s, T* out, u64 o0, u64 o1, u64 o2, float* lse) {
    extern __shared__ double memory[];
    T* q = tiles_in(memory);
    T* steps_at = q + BLOCK_ROWS * ROW;
    u64 h = blockIdx.y % s.heads, b = blockIdx.y / s.heads, kh = h / (s.heads / s.kv_heads);
    // Under a causal mask later queries see more: they start first.
    int first = (int)(gridDim.x - 1 - blockIdx.x) * BLOCK_ROWS;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const T* keys = s.k + b * s.k_strides[0] + kh * s.k_strides[1];
    const T* values = s.v + b * s.v_strides[0] + kh * s.v_strides[1];
    int end = CAUSAL && first + BLOCK_ROWS < (int)s.s ? first + BLOCK_ROWS : (int)s.s;
    int steps = (end + STEP - 1) / STEP;
    load_rows<BLOCK_ROWS>(q, s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], first, s.l, (int)s.d);
    load_rows<STEP>(STAGE(0, 0), keys, s.k_strides[2], 0, s.s, (int)s.d);
    load_rows<STEP>(STAGE(0, 1), values, s.v_strides[2], 0, s.s, (int)s.d);
    commit();
    float acc[TILES][D / 8][4], top[TILES][2], sum[TILES][2];
    clear(acc);
#pragma unroll
    for (int m = 0; m < TILES; m++) top[m][0] = top[m][1] = LOWEST, sum[m][0] = sum[m][1] = 0;
#if WARPGROUP
    const T* mine = q;
#else
    wait_for_copies<0>();
    Fragment mine[TILES][D / 16];
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
#pragma unroll
        for (int m = 0; m < TILES; m++) load_a(mine[m][k], q, (warp * TILES + m) * 16, k * 16);
    }
#endif
    float scale = (float)s.scale * LOG2E;
    int start = first + warp * 16 * TILES, last = first + (warp / GROUP + 1) * GROUP * 16 * TILES - 1;
    for (int n = 0; n < steps; n++) {
        if (n + 1 < steps) {
            load_rows<STEP>(STAGE(n + 1, 0), keys, s.k_strides[2], (n + 1) * STEP, s.s, (int)s.d);
            load_rows<STEP>(STAGE(n + 1, 1), values, s.v_strides[2], (n + 1) * STEP, s.s, (int)s.d);
            commit();
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        int at = n * STEP;
        // Keys that none of these queries sees are left out.
        if (!CAUSAL || at <= last) {
            float p[TILES][STEP / 8][4];
            times_transposed(p, mine, STAGE(n, 0));
            wait_for_products<0>(p);
            bool edge = MASK || at + STEP > (int)s.s || (CAUSAL && at + STEP - 1 > start);
            if (edge) {
#pragma unroll
                for (int m = 0; m < TILES; m++) {
#pragma unroll
                    for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                        for (int e = 0; e < 4; e++) p[m][c][e] = masked(s, b, h, start + m * 16 + g + e / 2 * 8, at + c * 8 + t * 2 + e % 2, p[m][c][e] * scale);
                    }
                }
            }
            // Beyond the edges scores are scaled on the way to their exponentials.
            float by = edge ? 1.0f : scale;
#pragma unroll
            for (int m = 0; m < TILES; m++) {
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float high = p[m][0][2 * r];
#pragma unroll
                    for (int c = 0; c < STEP / 8; c++) high = fmaxf(high, fmaxf(p[m][c][2 * r], p[m][c][2 * r + 1]));
                    high = fmaxf(high, __shfl_xor_sync(FULL_WARP, high, 1));
                    high = fmaxf(high, __shfl_xor_sync(FULL_WARP, high, 2));
                    high = fmaxf(top[m][r], high * by);
                    // While every key is masked out, differences would be NaN.
                    float base = high == LOWEST ? 0.0f : high;
                    float correction = exp2_fast(top[m][r] - base), total = 0;
                    top[m][r] = high;
#pragma unroll
                    for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                        for (int e = 2 * r; e < 2 * r + 2; e++) {
                            float x = exp2_fast(fmaf(p[m][c][e], by, -base));
                            total += x;
                            if (DROPOUT) x *= kept(s, blockIdx.y, start + m * 16 + g + r * 8, at + c * 8 + t * 2 + e % 2);
                            p[m][c][e] = x;
                        }
                    }
                    sum[m][r] = sum[m][r] * correction + total;
                    // Most steps leave every row's largest score as it is.
                    if (__any_sync(FULL_WARP, correction != 1)) {
#pragma unroll
                        for (int c = 0; c < D / 8; c++) acc[m][c][2 * r] *= correction, acc[m][c][2 * r + 1] *= correction;
                    }
                }
            }
            accumulate(acc, p, STAGE(n, 1));
            wait_for_products<0>(acc);
        }
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < TILES; m++) {
        float factor[2];
        int row = start + m * 16 + g;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float total = sum[m][r];
            total += __shfl_xor_sync(FULL_WARP, total, 1);
            total += __shfl_xor_sync(FULL_WARP, total, 2);
            factor[r] = total == 0 ? 0.0f : 1 / total;
            if (t == 0 && row + r * 8 < (int)s.l) lse[blockIdx.y * s.l + (u64)(row + r * 8)] = total == 0 ? LOWEST : top[m][r] * LN2 + logf(total);
        }
        store_rows(acc[m], factor[0], factor[1], out + b * o0 + h * o1, o2, start + m * 16, s.l, (int)s.d);
    }
}
#endif

// The logarithm of a row's sum in units of log2; of a row that saw no key such that its probabilities come out zero.
__device__ inline float saved_sum(float lse) { return lse == LOWEST ? (float)INFINITY : lse * LOG2E; }

#ifdef QUERIES
// The gradient by the queries: as the forward pass, with the probabilities from the saved sums. Leaves out . dout of each row, which the softmax's
// derivative takes off every term of it, for the gradient by the keys.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash_queries(Spec s, Saved saved, float* delta, T* dq, u64 d0, u64 d1, u64 d2) {
    extern __shared__ double memory[];
    T* q = tiles_in(memory);
    T* steps_at = q + (WARPGROUP ? 2 : 1) * BLOCK_ROWS * ROW;
    float* deltas = (float*)(steps_at + 4 * STEP * ROW);
    u64 h = blockIdx.y % s.heads, b = blockIdx.y / s.heads, kh = h / (s.heads / s.kv_heads);
    int first = (int)(gridDim.x - 1 - blockIdx.x) * BLOCK_ROWS;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const T* keys = s.k + b * s.k_strides[0] + kh * s.k_strides[1];
    const T* values = s.v + b * s.v_strides[0] + kh * s.v_strides[1];
    const T* grads = saved.dout + b * saved.dout_strides[0] + h * saved.dout_strides[1];
    int end = CAUSAL && first + BLOCK_ROWS < (int)s.s ? first + BLOCK_ROWS : (int)s.s;
    int steps = (end + STEP - 1) / STEP;
    load_rows<BLOCK_ROWS>(q, s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], first, s.l, (int)s.d);
    commit();
    {
        // Two threads to a row.
        int i = first + (int)threadIdx.x / 2, part = threadIdx.x % 2;
        float sum = 0;
        if (i < (int)s.l) {
            const T* o = saved.out + b * saved.out_strides[0] + h * saved.out_strides[1] + (u64)i * saved.out_strides[2];
            const T* d = grads + (u64)i * saved.dout_strides[2];
            for (int c = part * 8; c < (int)s.d; c += 16) {
                Vec<T, 8> x = *(const Vec<T, 8>*)(o + c), y = *(const Vec<T, 8>*)(d + c);
#pragma unroll
                for (int e = 0; e < 8; e++) sum += plain(x.v[e]) * plain(y.v[e]);
            }
        }
        sum += __shfl_xor_sync(FULL_WARP, sum, 1);
        if (part == 0) {
            deltas[threadIdx.x / 2] = sum;
            if (i < (int)s.l) delta[blockIdx.y * s.l + (u64)i] = sum;
        }
    }
#if WARPGROUP
    const T *mine = q, *incoming = q + BLOCK_ROWS * ROW;
    load_rows<BLOCK_ROWS>(q + BLOCK_ROWS * ROW, grads, saved.dout_strides[2], first, s.l, (int)s.d);
#else
    // Queries and incoming gradients pass through the same memory on their way to registers.
    Fragment mine[1][D / 16], incoming[1][D / 16];
    wait_for_copies<0>();
#pragma unroll
    for (int k = 0; k < D / 16; k++) load_a(mine[0][k], q, warp * 16, k * 16);
    __syncthreads();
    load_rows<BLOCK_ROWS>(q, grads, saved.dout_strides[2], first, s.l, (int)s.d);
    commit();
    wait_for_copies<0>();
#pragma unroll
    for (int k = 0; k < D / 16; k++) load_a(incoming[0][k], q, warp * 16, k * 16);
#endif
    load_rows<STEP>(STAGE(0, 0), keys, s.k_strides[2], 0, s.s, (int)s.d);
    load_rows<STEP>(STAGE(0, 1), values, s.v_strides[2], 0, s.s, (int)s.d);
    commit();
    __syncthreads();
    float acc[1][D / 8][4];
    clear(acc);
    float scale = (float)s.scale * LOG2E;
    int row = first + warp * 16 + g, start = first + warp * 16, last = first + (warp / GROUP + 1) * GROUP * 16 - 1;
    float log_sum[2], off[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        log_sum[r] = row + r * 8 < (int)s.l ? saved_sum(saved.lse[blockIdx.y * s.l + (u64)(row + r * 8)]) : 0.0f;
        off[r] = deltas[warp * 16 + g + r * 8];
    }
    for (int n = 0; n < steps; n++) {
        if (n + 1 < steps) {
            load_rows<STEP>(STAGE(n + 1, 0), keys, s.k_strides[2], (n + 1) * STEP, s.s, (int)s.d);
            load_rows<STEP>(STAGE(n + 1, 1), values, s.v_strides[2], (n + 1) * STEP, s.s, (int)s.d);
            commit();
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        int at = n * STEP;
        if (!CAUSAL || at <= last) {
            float p[1][STEP / 8][4], ds[1][STEP / 8][4];
            times_transposed(p, mine, STAGE(n, 0));
            times_transposed(ds, incoming, STAGE(n, 1));
            wait_for_products<1>(p);
            if (MASK || at + STEP > (int)s.s || first + BLOCK_ROWS > (int)s.l || (CAUSAL && at + STEP - 1 > start)) {
#pragma unroll
                for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) p[0][c][e] = exp2_fast(masked(s, b, h, row + e / 2 * 8, at + c * 8 + t * 2 + e % 2, p[0][c][e] * scale) - log_sum[e / 2]);
                }
            } else {
#pragma unroll
                for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) p[0][c][e] = exp2_fast(fmaf(p[0][c][e], scale, -log_sum[e / 2]));
                }
            }
            wait_for_products<0>(ds);
#pragma unroll
            for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float d = ds[0][c][e];
                    if (DROPOUT) d *= kept(s, blockIdx.y, row + e / 2 * 8, at + c * 8 + t * 2 + e % 2);
                    p[0][c][e] *= d - off[e / 2];
                }
            }
            accumulate(acc, p, STAGE(n, 0));
            wait_for_products<0>(acc);
        }
        __syncthreads();
    }
    store_rows(acc[0], (float)s.scale, (float)s.scale, dq + b * d0 + h * d1, d2, start, s.l, (int)s.d);
}
#endif

#ifdef KEYS
// The gradients by keys and values: rows are keys, columns queries, so that both products over queries start from registers.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash_keys(Spec s, Saved saved, const float* delta, T* dk, T* dv, u64 k0, u64 k1, u64 k2, u64 v0, u64 v1, u64 v2) {
    extern __shared__ double memory[];
    T* staged = tiles_in(memory);
    T* steps_at = staged + (WARPGROUP ? 2 : 1) * BLOCK_ROWS * ROW;
    float* sums = (float*)(steps_at + 4 * STEP * ROW);  // [2][2][STEP]: logarithms of sums, deltas
    u64 kh = blockIdx.y % s.kv_heads, b = blockIdx.y / s.kv_heads, group = s.heads / s.kv_heads;
    int first = (int)blockIdx.x * BLOCK_ROWS;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#if WARPGROUP
    const T *mine = staged, *value = staged + BLOCK_ROWS * ROW;
    load_rows<BLOCK_ROWS>(staged, s.k + b * s.k_strides[0] + kh * s.k_strides[1], s.k_strides[2], first, s.s, (int)s.d);
    load_rows<BLOCK_ROWS>(staged + BLOCK_ROWS * ROW, s.v + b * s.v_strides[0] + kh * s.v_strides[1], s.v_strides[2], first, s.s, (int)s.d);
#else
    Fragment mine[1][D / 16], value[1][D / 16];
    load_rows<BLOCK_ROWS>(staged, s.k + b * s.k_strides[0] + kh * s.k_strides[1], s.k_strides[2], first, s.s, (int)s.d);
    commit();
    wait_for_copies<0>();
#pragma unroll
    for (int k = 0; k < D / 16; k++) load_a(mine[0][k], staged, warp * 16, k * 16);
    __syncthreads();
    load_rows<BLOCK_ROWS>(staged, s.v + b * s.v_strides[0] + kh * s.v_strides[1], s.v_strides[2], first, s.s, (int)s.d);
    commit();
    wait_for_copies<0>();
#pragma unroll
    for (int k = 0; k < D / 16; k++) load_a(value[0][k], staged, warp * 16, k * 16);
#endif
    float acc_k[1][D / 8][4], acc_v[1][D / 8][4];
    clear(acc_k);
    clear(acc_v);
    float scale = (float)s.scale * LOG2E;
    int key = first + warp * 16 + g, low = first + warp / GROUP * GROUP * 16;
    // Steps before the first query that sees these keys are left out.
    int start = CAUSAL ? (int)(first / STEP) : 0, per_head = (int)((s.l + STEP - 1) / STEP) - start;
    int steps = per_head > 0 ? per_head * (int)group : 0;
    auto load_step = [&](int n) {
        u64 h = kh * group + (u64)(n / per_head);
        int at = (start + n % per_head) * STEP;
        load_rows<STEP>(STAGE(n, 0), s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], at, s.l, (int)s.d);
        load_rows<STEP>(STAGE(n, 1), saved.dout + b * saved.dout_strides[0] + h * saved.dout_strides[1], saved.dout_strides[2], at, s.l, (int)s.d);
        commit();
        if (threadIdx.x < STEP) {
            int i = at + (int)threadIdx.x;
            u64 place = (b * s.heads + h) * s.l + (u64)i;
            sums[n % 2 * 2 * STEP + threadIdx.x] = i < (int)s.l ? saved_sum(saved.lse[place]) : 0.0f;
            sums[n % 2 * 2 * STEP + STEP + threadIdx.x] = i < (int)s.l ? delta[place] : 0.0f;
        }
    };
    if (steps > 0) load_step(0);
    for (int n = 0; n < steps; n++) {
        if (n + 1 < steps) {
            load_step(n + 1);
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        u64 h = kh * group + (u64)(n / per_head);
        int at = (start + n % per_head) * STEP;
        const float *log_sum = sums + n % 2 * 2 * STEP, *off = log_sum + STEP;
        // Queries that see none of these keys.
        if (!CAUSAL || at + STEP - 1 >= low) {
            float p[1][STEP / 8][4], ds[1][STEP / 8][4];
            times_transposed(p, mine, STAGE(n, 0));
            times_transposed(ds, value, STAGE(n, 1));
            wait_for_products<1>(p);
            if (MASK || at + STEP > (int)s.l || first + BLOCK_ROWS > (int)s.s || (CAUSAL && at < first + warp * 16 + 15)) {
#pragma unroll
                for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        int query = c * 8 + t * 2 + e % 2;
                        p[0][c][e] = exp2_fast(masked(s, b, h, at + query, key + e / 2 * 8, p[0][c][e] * scale) - log_sum[query]);
                    }
                }
            } else {
#pragma unroll
                for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) p[0][c][e] = exp2_fast(fmaf(p[0][c][e], scale, -log_sum[c * 8 + t * 2 + e % 2]));
                }
            }
            wait_for_products<0>(ds);
#pragma unroll
            for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int query = c * 8 + t * 2 + e % 2;
                    float factor = DROPOUT ? kept(s, b * s.heads + h, at + query, key + e / 2 * 8) : 1.0f;
                    ds[0][c][e] = p[0][c][e] * (ds[0][c][e] * factor - off[query]);
                    if (DROPOUT) p[0][c][e] *= factor;
                }
            }
            accumulate(acc_v, p, STAGE(n, 1));
            accumulate(acc_k, ds, STAGE(n, 0));
            wait_for_products<0>(acc_v);
            wait_for_products<0>(acc_k);
        }
        __syncthreads();
    }
    store_rows(acc_k[0], (float)s.scale, (float)s.scale, dk + b * k0 + kh * k1, k2, first + warp * 16, s.s, (int)s.d);
    store_rows(acc_v[0], 1.0f, 1.0f, dv + b * v0 + kh * v1, v2, first + warp * 16, s.s, (int)s.d);
}
#endif
