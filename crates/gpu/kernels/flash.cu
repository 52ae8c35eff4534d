// Attention on tensor cores, forward and backward, for half types.
//
// D: head size rounded up to 32, 64, 96, 128, 160, 192 or 256. A block takes BLOCK_ROWS queries (forward, gradient by
// queries) or keys (gradient by keys and values) of one head, 16 per warp, and walks the other side in steps of STEP.
// Scores never leave registers: the accumulators of one product have the layout of the next product's first operand.
// The block's own rows are fragments in registers (above 128 columns and for warp groups: in shared memory). Where
// products are asynchronous, a step's scores are multiplied while the softmax of the previous step is computed. No sum
// uses atomics, so results do not depend on timing. The texts of tensor_cores.cu, which has the products, and of
// flash_scores.cu precede this one.
//
// GRADS: the gradients that the kernel over keys computes, of values (1), keys (2) or both. Accumulators of both take
// too many registers above 128 columns.

// The grid: heads whose other side fits in the cache together, by tiles of each head, by sets of such heads. Lower tile
// numbers start first.
#define HEAD (blockIdx.z * gridDim.x + blockIdx.x)
#define TILE_OF_HEAD (int)blockIdx.y
#define TILES (int)gridDim.y

// Steps use STAGES buffers in turn, two tiles each.
#if WARPGROUP
#define STAGES 3
#else
#define STAGES 2
#endif
#define TILE(stage, which) (steps_at + ((stage) * 2 + (which)) * (STEP * ROW))
__device__ inline int after(int stage) { return stage + 1 == STAGES ? 0 : stage + 1; }

#ifndef GRADS
#define GRADS 3
#endif
#define STAGED (WARPGROUP || D > 128)

// Number of steps with keys that a group's queries from `first` on see.
__device__ inline int steps_of(int first, int steps) {
    int seen = (first + GROUP * 16 - 1) / STEP + 1;
    return CAUSAL && seen < steps ? seen : steps;
}

#ifdef FORWARD
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash(Spec s, T* out, u64 o0, u64 o1, u64 o2, float* lse) {
    extern __shared__ double memory[];
    T* q = tiles_in(memory);
    T* steps_at = q + BLOCK_ROWS * ROW;
    u32 head = HEAD, heads = (u32)s.heads;
    if (head >= (u32)s.batch * heads) return;
    u64 b = head / heads;
    u32 h = head - (u32)b * heads, kh = s.kv_heads == heads ? h : h / (heads / (u32)s.kv_heads);
    // Under a causal mask later queries see more keys, so they start first.
    int first = (TILES - 1 - TILE_OF_HEAD) * BLOCK_ROWS;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int end = CAUSAL && first + BLOCK_ROWS < (int)s.s ? first + BLOCK_ROWS : (int)s.s;
    int start = first + warp * 16, row = start + g;
    // Steps of the block, and those with keys that this group's queries (`own`) or the first group's (`least`) see.
    int steps = (end + STEP - 1) / STEP, own = steps_of(first + warp / GROUP * (GROUP * 16), steps), least = steps_of(first, steps);
    Source next_keys = source(s.k + b * s.k_strides[0] + kh * s.k_strides[1], s.k_strides[2], 0, s.s, (int)s.d);
    Source next_values = source(s.v + b * s.v_strides[0] + kh * s.v_strides[1], s.v_strides[2], 0, s.s, (int)s.d);
    auto load_step = [&](int n, int stage) {
        if (n < steps) {
            load_rows<STEP>(TILE(stage, 0), next_keys);
            load_rows<STEP>(TILE(stage, 1), next_values);
        }
        commit();
    };
    Source queries = source(s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], first, s.l, (int)s.d);
    load_rows<BLOCK_ROWS>(q, queries);
    load_step(0, 0);
    load_step(1, 1);
    wait_for_copies<1>();
    float acc[D / 8][4], p[STEP / 8][4];
    Softmax softmax;
    softmax.begin();
    Fragment weights[STEP / 16];
    clear(acc);
    clear(p);
#if STAGED
    const T* mine = q;
#else
    Fragment mine[D / 16];
#pragma unroll
    for (int k = 0; k < D / 16; k++) load_a(mine[k], q, warp * 16, k * 16);
#endif
    float scale = (float)s.scale * LOG2E;
#if DROPOUT
    float enlarged = (float)(1 / (1 - s.p));
#else
    const float enlarged = 1;
#endif
    // Converts a step's scores to the weights of its values.
    auto weigh = [&](int n) {
        int at = n * STEP;
#if DROPOUT
        u32 kept_bits = kept_by_queries(s, (head * s.l + (u64)row) * s.s + (u64)(at + t * 2));
#else
        const u32 kept_bits = 0;
#endif
#if MASK
        Masks masks;
        masks.load_queries(s, b, h, row, at + t * 2);
        wait_for_products<1>(p);
        // The exponential applies the scale, but for numbers to add.
        masks.apply(p, MASK == 1 ? 1 : scale);
        const float by = MASK == 1 ? scale : 1;
#else
        wait_for_products<1>(p);
        const float by = scale;
#endif
        if (at + STEP > (int)s.s || (CAUSAL && at + STEP - 1 > start)) {
            hide_unseen(p, s, row, at + t * 2, LOWEST);
        }
        float correction[2];
        softmax.weigh(p, by, kept_bits, enlarged, correction);
        hold(p);
        // The sums are positive. Reading them here keeps ptxas from inserting an earlier wait.
        if (__any_sync(FULL_WARP, correction[0] != 1 || correction[1] != 1 || !(softmax.sum[0] > 0) || !(softmax.sum[1] > 0))) {
            wait_for_products<0>(acc);
            scale_rows(acc, correction);
        }
        wait_for_products<0>(acc);
        hold(weights);
        as_operand(weights, p);
    };
    int stage = 0;
    if (own > 0) {
        times_transposed(p, mine, TILE(0, 0));
        end_products();
        weigh(0);
        auto step = [&](int n) {
            int next = after(stage);
            if (!WARPGROUP) accumulate(acc, weights, TILE(stage, 1));
            wait_for_copies<0>();
            load_step(n + 1, after(next));
            times_transposed(p, mine, TILE(next, 0));
            if (WARPGROUP) accumulate(acc, weights, TILE(stage, 1));
            weigh(n);
            stage = next;
        };
        // Steps of all warps have their own loop: it has fewer instructions.
        for (int n = 1; n < least; n++) step(n);
        if (BLOCK_ROWS > STEP) {
            for (int n = least; n < own; n++) step(n);
        }
        accumulate(acc, weights, TILE(stage, 1));
        wait_for_products<0>(acc);
        hold(weights);
    }
    // Other warps' steps.
    for (int n = own; n < steps; n++) {
        stage = after(stage);
        wait_for_copies<0>();
        load_step(n + 1, after(stage));
    }
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) factor[r] = softmax.end(r, lse, head * s.l + (u64)(row + r * 8), t == 0 && row + r * 8 < (int)s.l);
    store_rows(acc, factor[0], factor[1], out + b * o0 + h * o1, o2, start, s.l, (int)s.d);
}
#endif

#ifdef QUERIES
// The gradient by the queries: like the forward pass, with the probabilities from the saved sums. Stores the per-row
// values for the gradient by the keys.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash_queries(Spec s, Saved saved, Row* rows, T* dq, u64 d0, u64 d1, u64 d2) {
    extern __shared__ double memory[];
    T* q = tiles_in(memory);
    T* steps_at = q + (STAGED ? 2 : 1) * BLOCK_ROWS * ROW;
    Row* block_rows = (Row*)(steps_at + STAGES * 2 * STEP * ROW);
    u32 head = HEAD, heads = (u32)s.heads;
    if (head >= (u32)s.batch * heads) return;
    u64 b = head / heads;
    u32 h = head - (u32)b * heads, kh = s.kv_heads == heads ? h : h / (heads / (u32)s.kv_heads);
    int first = (TILES - 1 - TILE_OF_HEAD) * BLOCK_ROWS;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const T* grads = saved.dout + b * saved.dout_strides[0] + h * saved.dout_strides[1];
    int end = CAUSAL && first + BLOCK_ROWS < (int)s.s ? first + BLOCK_ROWS : (int)s.s;
    int start = first + warp * 16, row = start + g;
    int steps = (end + STEP - 1) / STEP, own = steps_of(first + warp / GROUP * (GROUP * 16), steps), least = steps_of(first, steps);
    Source next_keys = source(s.k + b * s.k_strides[0] + kh * s.k_strides[1], s.k_strides[2], 0, s.s, (int)s.d);
    Source next_values = source(s.v + b * s.v_strides[0] + kh * s.v_strides[1], s.v_strides[2], 0, s.s, (int)s.d);
    auto load_step = [&](int n, int stage) {
        if (n < steps) {
            load_rows<STEP>(TILE(stage, 0), next_keys);
            load_rows<STEP>(TILE(stage, 1), next_values);
        }
        commit();
    };
    Source queries = source(s.q + b * s.q_strides[0] + h * s.q_strides[1], s.q_strides[2], first, s.l, (int)s.d);
    load_rows<BLOCK_ROWS>(q, queries);
    Source incoming_rows = source(grads, saved.dout_strides[2], first, s.l, (int)s.d);
#if STAGED
    const T *mine = q, *incoming = q + BLOCK_ROWS * ROW;
    load_rows<BLOCK_ROWS>(q + BLOCK_ROWS * ROW, incoming_rows);
#else
    commit();
#endif
    load_step(0, 0);
    load_step(1, 1);
    {
        // Two threads per row.
        int i = first + (int)threadIdx.x / 2, part = threadIdx.x % 2;
        bool there = i < (int)s.l;
        const T* o = saved.out + b * saved.out_strides[0] + h * saved.out_strides[1] + (u64)i * saved.out_strides[2];
        const T* d = grads + (u64)i * saved.dout_strides[2];
        Vec<T, 8> x[D / 16], y[D / 16];
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            int c = (2 * k + part) * 8;
            if (there && c < (int)s.d) x[k] = *(const Vec<T, 8>*)(o + c), y[k] = *(const Vec<T, 8>*)(d + c);
        }
        float sum = 0, log_sum = there ? saved_sum(saved.lse[head * s.l + (u64)i]) : 0.0f;
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            if (there && (2 * k + part) * 8 < (int)s.d) {
#pragma unroll
                for (int e = 0; e < 8; e++) sum += plain(x[k].v[e]) * plain(y[k].v[e]);
            }
        }
        sum += __shfl_xor_sync(FULL_WARP, sum, 1);
        if (part == 0) {
            block_rows[threadIdx.x / 2] = Row{log_sum, sum};
            if (there) rows[head * s.l + (u64)i] = Row{log_sum, sum};
        }
    }
#if !STAGED
    // Queries and incoming gradients are staged through the same memory.
    Fragment mine[D / 16], incoming[D / 16];
    wait_for_copies<2>();
#pragma unroll
    for (int k = 0; k < D / 16; k++) load_a(mine[k], q, warp * 16, k * 16);
    __syncthreads();
    load_rows<BLOCK_ROWS>(q, incoming_rows);
    commit();
    wait_for_copies<0>();
#pragma unroll
    for (int k = 0; k < D / 16; k++) load_a(incoming[k], q, warp * 16, k * 16);
#else
    wait_for_copies<1>();
#endif
    float acc[D / 8][4], p[STEP / 8][4], ds[STEP / 8][4];
    Fragment weights[STEP / 16];
    clear(acc);
    clear(p);
    clear(ds);
    float scale = (float)s.scale * LOG2E;
#if DROPOUT
    float enlarged = (float)(1 / (1 - s.p));
#endif
    Row sums[2] = {block_rows[warp * 16 + g], block_rows[warp * 16 + g + 8]};
    auto score = [&](int stage) {
        times_transposed(p, mine, TILE(stage, 0));
        times_transposed(ds, incoming, TILE(stage, 1));
    };
    auto weigh = [&](int n) {
        int at = n * STEP;
#if DROPOUT
        u32 kept_bits = kept_by_queries(s, (head * s.l + (u64)row) * s.s + (u64)(at + t * 2));
#endif
#if MASK
        Masks masks;
        masks.load_queries(s, b, h, row, at + t * 2);
#endif
        wait_for_products<2>(p);
#if MASK
        masks.apply(p, scale);
#endif
#pragma unroll
        for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
#if MASK
                p[c][e] = exp2_fast(p[c][e] - sums[e / 2].log_sum);
#else
                p[c][e] = exp2_fast(fmaf(p[c][e], scale, -sums[e / 2].log_sum));
#endif
            }
        }
        if (at + STEP > (int)s.s || (CAUSAL && at + STEP - 1 > start)) {
            hide_unseen(p, s, row, at + t * 2, 0.0f);
        }
        hold(p);
        wait_for_products<1>(ds);
#pragma unroll
        for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
            for (int e = 0; e < 4; e++) p[c][e] *= DROPPED(ds[c][e], c, e) - sums[e / 2].delta;
        }
        hold(p);
        wait_for_products<0>(acc);
        hold(weights);
        as_operand(weights, p);
    };
    int stage = 0;
    if (own > 0) {
        score(0);
        end_products();
        weigh(0);
        auto step = [&](int n) {
            int next = after(stage);
            if (!WARPGROUP) accumulate(acc, weights, TILE(stage, 0));
            wait_for_copies<0>();
            load_step(n + 1, after(next));
            score(next);
            if (WARPGROUP) accumulate(acc, weights, TILE(stage, 0));
            weigh(n);
            stage = next;
        };
        for (int n = 1; n < least; n++) step(n);
        if (BLOCK_ROWS > STEP) {
            for (int n = least; n < own; n++) step(n);
        }
        accumulate(acc, weights, TILE(stage, 0));
        wait_for_products<0>(acc);
        hold(weights);
    }
    for (int n = own; n < steps; n++) {
        stage = after(stage);
        wait_for_copies<0>();
        load_step(n + 1, after(stage));
    }
    store_rows(acc, (float)s.scale, (float)s.scale, dq + b * d0 + h * d1, d2, start, s.l, (int)s.d);
}
#endif

#ifdef KEYS
// The gradients by keys and values: rows are keys, columns queries, so that both products over queries start from
// registers.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash_keys(Spec s, Saved saved, const Row* rows, T* dk, T* dv, u64 k0, u64 k1, u64 k2, u64 v0, u64 v1, u64 v2) {
    extern __shared__ double memory[];
    T* staged = tiles_in(memory);
    T* steps_at = staged + (STAGED ? 2 : 1) * BLOCK_ROWS * ROW;
    Row* step_rows = (Row*)(steps_at + STAGES * 2 * STEP * ROW);
    u32 head = HEAD, kv_heads = (u32)s.kv_heads;
    if (head >= (u32)s.batch * kv_heads) return;
    u64 b = head / kv_heads;
    u32 kh = head - (u32)b * kv_heads, group = (u32)s.heads / kv_heads;
    int first = TILE_OF_HEAD * BLOCK_ROWS;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int key = first + warp * 16 + g;
    // Skips steps before the first query that sees these keys.
    int skipped = CAUSAL ? first / STEP : 0, per_head = (int)((s.l + STEP - 1) / STEP) - skipped;
    int steps = per_head > 0 ? per_head * (int)group : 0;
    // The next step's rows, and the remaining steps of its head.
    Source next_queries, next_grads;
    const Row* next_rows;
    u32 next_head = kh * group;
    int left = 0;
    auto load_step = [&](int n, int stage) {
        if (n < steps) {
            if (left == 0) {
                int at = skipped * STEP;
                next_queries = source(s.q + b * s.q_strides[0] + next_head * s.q_strides[1], s.q_strides[2], at, s.l, (int)s.d);
                next_grads = source(saved.dout + b * saved.dout_strides[0] + next_head * saved.dout_strides[1], saved.dout_strides[2], at, s.l, (int)s.d);
                next_rows = rows + (b * s.heads + next_head) * s.l + (u64)at + threadIdx.x;
                next_head++;
                left = per_head;
            }
            load_rows<STEP>(TILE(stage, 0), next_queries);
            load_rows<STEP>(TILE(stage, 1), next_grads);
            int i = (skipped + per_head - left) * STEP + (int)threadIdx.x;
            if (threadIdx.x < STEP) copy_row(step_rows + stage * STEP + threadIdx.x, next_rows, i < (int)s.l);
            next_rows += STEP;
            left--;
        }
        commit();
    };
    Source own_keys = source(s.k + b * s.k_strides[0] + kh * s.k_strides[1], s.k_strides[2], first, s.s, (int)s.d);
    Source own_values = source(s.v + b * s.v_strides[0] + kh * s.v_strides[1], s.v_strides[2], first, s.s, (int)s.d);
    load_rows<BLOCK_ROWS>(staged, own_keys);
#if STAGED
    const T *mine = staged, *value = staged + BLOCK_ROWS * ROW;
    load_rows<BLOCK_ROWS>(staged + BLOCK_ROWS * ROW, own_values);
    load_step(0, 0);
    load_step(1, 1);
    wait_for_copies<1>();
#else
    Fragment mine[D / 16], value[D / 16];
    commit();
    wait_for_copies<0>();
#pragma unroll
    for (int k = 0; k < D / 16; k++) load_a(mine[k], staged, warp * 16, k * 16);
    __syncthreads();
    load_rows<BLOCK_ROWS>(staged, own_values);
    load_step(0, 0);
    load_step(1, 1);
    wait_for_copies<1>();
#pragma unroll
    for (int k = 0; k < D / 16; k++) load_a(value[k], staged, warp * 16, k * 16);
#endif
    float acc_k[D / 8][4], acc_v[D / 8][4], p[STEP / 8][4], ds[STEP / 8][4];
    Fragment by_value[STEP / 16], by_key[STEP / 16];
    clear(acc_k);
    clear(acc_v);
    clear(p);
    clear(ds);
    float scale = (float)s.scale * LOG2E;
#if DROPOUT
    float enlarged = (float)(1 / (1 - s.p));
#endif
    auto score = [&](int stage) {
        times_transposed(p, mine, TILE(stage, 0));
        if (GRADS & 2) times_transposed(ds, value, TILE(stage, 1));
    };
    // A step's first query and its head.
    int at = skipped * STEP;
    u32 h = kh * group;
    auto weigh = [&](int stage) {
#if DROPOUT
        u32 kept_bits = kept_by_keys(s, ((b * s.heads + h) * s.l + (u64)(at + t * 2)) * s.s + (u64)key);
#endif
        // For two neighbouring queries each.
        const Vec<Row, 2>* sums = (const Vec<Row, 2>*)(step_rows + stage * STEP) + t;
        Vec<Row, 2> both[STEP / 8];
#pragma unroll
        for (int c = 0; c < STEP / 8; c++) both[c] = sums[c * 4];
#if MASK
        Masks masks;
        masks.load_keys(s, b, h, at + t * 2, key);
#endif
        wait_for_products<3>(p);
#if MASK
        masks.apply(p, scale);
#endif
#pragma unroll
        for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
#if MASK
                p[c][e] = exp2_fast(p[c][e] - both[c].v[e % 2].log_sum);
#else
                p[c][e] = exp2_fast(fmaf(p[c][e], scale, -both[c].v[e % 2].log_sum));
#endif
            }
        }
        // Queries past the end add zeros; of the others some may not see the keys.
        if (CAUSAL && at < first + warp * 16 + 15) {
            int from[2] = {key - at - t * 2, key + 8 - at - t * 2};
#pragma unroll
            for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                for (int e = 0; e < 4; e++) p[c][e] = c * 8 + e % 2 >= from[e / 2] ? p[c][e] : 0.0f;
            }
        }
        hold(p);
        wait_for_products<2>(ds);
#pragma unroll
        for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                ds[c][e] = p[c][e] * (DROPPED(ds[c][e], c, e) - both[c].v[e % 2].delta);
                p[c][e] = DROPPED(p[c][e], c, e);
            }
        }
        hold(p);
        hold(ds);
        wait_for_products<0>(acc_v);
        hold(acc_k);
        hold(by_value);
        hold(by_key);
        as_operand(by_value, p);
        as_operand(by_key, ds);
    };
    auto add = [&](int stage) {
        if (GRADS & 1) accumulate(acc_v, by_value, TILE(stage, 1));
        if (GRADS & 2) accumulate(acc_k, by_key, TILE(stage, 0));
    };
    if (steps > 0) {
        int stage = 0;
        score(0);
        end_products();
        end_products();
        weigh(0);
        for (int n = 1; n < steps; n++) {
            int next = after(stage);
            at += STEP;
            if (at >= (int)s.l) at = skipped * STEP, h++;
            if (!WARPGROUP) add(stage);
            wait_for_copies<0>();
            load_step(n + 1, after(next));
            score(next);
            if (WARPGROUP) add(stage);
            weigh(next);
            stage = next;
        }
        add(stage);
        wait_for_products<0>(acc_v);
        wait_for_products<0>(acc_k);
        hold(by_value);
        hold(by_key);
    }
    if (GRADS & 2) store_rows(acc_k, (float)s.scale, (float)s.scale, dk + b * k0 + kh * k1, k2, first + warp * 16, s.s, (int)s.d);
    if (GRADS & 1) store_rows(acc_v, 1.0f, 1.0f, dv + b * v0 + kh * v1, v2, first + warp * 16, s.s, (int)s.d);
}
#endif
