// Attention on tensor cores for compute capability 9.0: the kernels of flash.cu for long rows of half types.
//
// Blocks are persistent and loop over tasks. A task is BLOCK_ROWS queries (forward, gradient by queries) or keys
// (gradient by keys and values) of a head, which walk the other side in steps of STEP. One producer thread issues tile
// copies a task ahead, if TASKS of them fit; CONSUMERS groups of four warps multiply 64 rows each. D is 64, 128, 192
// or 256, for gradients 128: for smaller D the small blocks of flash.cu hide more latency, larger sums fit no
// registers. As in flash.cu scores never leave registers, a step's scores are multiplied while the previous step is
// summed, and no sum uses atomics. The text of hopper_tasks.cu, which has tasks, places and products, precedes this
// one.

#ifdef FORWARD
extern "C" __global__ void __launch_bounds__(THREADS, 1) flash_hopper_forward(Spec s, Order order, const __grid_constant__ Map q_map, const __grid_constant__ Map k_map, const __grid_constant__ Map v_map, T* out, u64 o0, u64 o1, u64 o2, float* lse) {
    extern __shared__ double memory[];
    Tiles<BLOCK_ROWS, TASKS> queries;
    Tiles<STEP, STAGES> keys, values;
    Room all = room(memory);
    all.take(queries);
    all.take(keys);
    all.take(values);
    room_is_laid_out();
    u32 heads = (u32)s.heads, shared_by = heads / (u32)s.kv_heads;
    Task now;
    Turn<TASKS> tq;
    Turn<STAGES> tk, tv;
    if (threadIdx.x < 128) {
        give_registers<LEFT_REGISTERS>();
        if (threadIdx.x == 0) {
            for (Tasks tasks{order}; tasks.next(now);) {
                int b = now.head / heads, h = now.head % heads, kh = h / shared_by;
                // Under a causal mask later queries see more keys, so they come first.
                int first = (order.tiles - 1 - now.tile) * BLOCK_ROWS;
                queries.fill(tq, q_map, first, h, b);
                tq.next();
                auto fill_keys = [&](int step) { keys.fill(tk, k_map, step * STEP, kh, b), tk.next(); };
                auto fill_values = [&](int step) { values.fill(tv, v_map, step * STEP, kh, b), tv.next(); };
                int step = steps_before(s, first + BLOCK_ROWS) - 1;
                fill_keys(step);
                for (; step > 0; step--) fill_keys(step - 1), fill_values(step);
                fill_values(0);
            }
        }
    } else {
        take_registers<REGISTERS>();
        int group = threadIdx.x / 128 - 1, g = LANE / 4, t = LANE % 4;
        float acc[D / 8][4], p[STEP / 8][4], correction[2];
        Softmax softmax;
        Fragment weights[STEP / 16];
        float scale = (float)s.scale * LOG2E;
#if DROPOUT
        float enlarged = (float)(1 / (1 - s.p));
#else
        const float enlarged = 1;
#endif
        // Groups take turns to start products: one group's products overlap with another's softmax.
        auto take_turn = [&] { meet(1 + group, 256); };
        auto pass_turn = [&] { let_go(1 + (group + 1 == CONSUMERS ? 0 : group + 1), 256); };
        if (group == CONSUMERS - 1) pass_turn();
        for (Tasks tasks{order}; tasks.next(now);) {
            u64 b = now.head / heads, h = now.head % heads;
            int first = (order.tiles - 1 - now.tile) * BLOCK_ROWS, group_first = first + group * GROUP_ROWS;
            int start = group_first + threadIdx.x / 32 % 4 * 16, row = start + g;
            int steps = steps_before(s, first + BLOCK_ROWS), own = group_first < (int)s.l ? steps_before(s, group_first + GROUP_ROWS) : 0;
#if MASK
            // Loaded a step ahead.
            Masks masks;
            auto load_masks = [&](int n) { masks.load_queries(s, b, h, row, n * STEP + t * 2); };
            if (own > 0) load_masks(own - 1);
#endif
            // Converts a step's scores to the weights of its values. Only the last step of a group has keys that some
            // of its queries do not see.
            auto weigh = [&](int n, bool edge) {
                int at = n * STEP;
#if DROPOUT
                u32 kept_bits = kept_by_queries(s, (now.head * s.l + (u64)row) * s.s + (u64)(at + t * 2));
#else
                const u32 kept_bits = 0;
#endif
#if MASK
                wait_for_products<1>(p);
                // The exponential applies the scale, but for numbers to add.
                masks.apply(p, MASK == 1 ? 1 : scale);
                if (n > 0) load_masks(n - 1);
                const float by = MASK == 1 ? scale : 1;
#else
                wait_for_products<1>(p);
                const float by = scale;
#endif
                keys.release(tk);
                tk.next();
                if (edge) {
                    hide_unseen(p, s, row, at + t * 2, LOWEST);
                }
                softmax.weigh(p, by, kept_bits, enlarged, correction);
                hold(p);
            };
            queries.until_full(tq);
            // Other groups' steps.
            for (int step = steps; step > own; step--) {
                take_turn();
                pass_turn();
                keys.until_full(tk);
                keys.release(tk);
                tk.next();
                values.until_full(tv);
                values.release(tv);
                tv.next();
            }
            clear(acc);
            softmax.begin();
            if (own > 0) {
                keys.until_full(tk);
                take_turn();
                times_transposed<BLOCK_ROWS>(p, queries.at(tq), group, keys.at(tk));
                pass_turn();
                end_products();
                weigh(own - 1, true);
                as_operand(weights, p);
                for (int step = own - 2; step >= 0; step--) {
                    keys.until_full(tk);
                    take_turn();
                    times_transposed<BLOCK_ROWS>(p, queries.at(tq), group, keys.at(tk));
                    values.until_full(tv);
                    accumulate(acc, weights, values.at(tv));
                    pass_turn();
                    weigh(step, false);
                    wait_for_products<0>(acc);
                    hold(weights);
                    values.release(tv);
                    tv.next();
                    if (__any_sync(FULL_WARP, correction[0] != 1 || correction[1] != 1)) {
                        scale_rows(acc, correction);
                    }
                    as_operand(weights, p);
                }
                queries.release(tq);
                values.until_full(tv);
                accumulate(acc, weights, values.at(tv));
                wait_for_products<0>(acc);
                hold(weights);
                values.release(tv);
                tv.next();
            } else {
                queries.release(tq);
            }
            tq.next();
            float factor[2];
#pragma unroll
            for (int r = 0; r < 2; r++) factor[r] = softmax.end(r, lse, now.head * s.l + (u64)(row + r * 8), t == 0 && row + r * 8 < (int)s.l);
            store_rows(acc, factor[0], factor[1], out + b * o0 + h * o1, o2, start, s.l, (int)s.d);
        }
        // The last turn, which no group takes.
        if (group == 0) take_turn();
    }
}
#endif

#ifdef QUERIES
// The gradient by the queries: as the forward pass, with the probabilities from the saved sums. Stores the
// per-row values for the gradient by the keys, padded to whole tiles for each head. The producer's other warps prepare
// them a task ahead.
extern "C" __global__ void __launch_bounds__(THREADS, 1) flash_hopper_queries(Spec s, Saved saved, Order order, const __grid_constant__ Map q_map, const __grid_constant__ Map k_map, const __grid_constant__ Map v_map, const __grid_constant__ Map dout_map, Row* rows, T* dq, u64 d0, u64 d1, u64 d2) {
    extern __shared__ double memory[];
    Tiles<BLOCK_ROWS, 2> queries, incoming;
    Tiles<STEP, STAGES> keys;
    Tiles<STEP, 2> values;
    Places<2, 96, true> sums;
    Room all = room(memory);
    all.take(queries);
    all.take(incoming);
    all.take(keys);
    all.take(values);
    all.take(sums);
    Row* block_rows = (Row*)all.tiles;
    room_is_laid_out();
    u32 heads = (u32)s.heads, shared_by = heads / (u32)s.kv_heads;
    Task now;
    Turn<2> tq, tv, ts;
    Turn<STAGES> tk;
    if (threadIdx.x < 128) {
        give_registers<LEFT_REGISTERS>();
        if (threadIdx.x == 0) {
            for (Tasks tasks{order}; tasks.next(now);) {
                int b = now.head / heads, h = now.head % heads, kh = h / shared_by;
                int first = (order.tiles - 1 - now.tile) * BLOCK_ROWS;
                queries.fill(tq, q_map, first, h, b);
                incoming.fill(tq, dout_map, first, h, b);
                tq.next();
                for (int step = steps_before(s, first + BLOCK_ROWS) - 1; step >= 0; step--) {
                    keys.fill(tk, k_map, step * STEP, kh, b);
                    tk.next();
                    values.fill(tv, v_map, step * STEP, kh, b);
                    tv.next();
                }
            }
        } else if (threadIdx.x >= 32) {
            // Eight threads per row, twelve rows at a time.
            int part = LANE % 8, slot = (threadIdx.x - 32) / 8;
            for (Tasks tasks{order}; tasks.next(now);) {
                u64 b = now.head / heads, h = now.head % heads;
                int first = (order.tiles - 1 - now.tile) * BLOCK_ROWS;
                const T* out = saved.out + b * saved.out_strides[0] + h * saved.out_strides[1];
                const T* dout = saved.dout + b * saved.dout_strides[0] + h * saved.dout_strides[1];
                sums.until_empty(ts);
#pragma unroll (LEFT_REGISTERS < 64 ? 1 : 2)
                for (int r = slot; r < BLOCK_ROWS + slot; r += 12) {
                    u64 i = first + r;
                    bool there = r < BLOCK_ROWS && i < s.l;
                    float sum = 0, log_sum = (float)INFINITY;
                    Vec<T, 8> x[PANELS], y[PANELS];
#pragma unroll
                    for (int k = 0; k < PANELS; k++) {
                        u64 c = k * 64 + part * 8;
                        bool inside = there && c < s.d;
                        x[k] = y[k] = Vec<T, 8>{};
                        if (inside) x[k] = *(const Vec<T, 8>*)(out + i * saved.out_strides[2] + c), y[k] = *(const Vec<T, 8>*)(dout + i * saved.dout_strides[2] + c);
                    }
                    if (there) log_sum = saved_sum(saved.lse[now.head * s.l + i]);
#pragma unroll
                    for (int k = 0; k < PANELS; k++) {
#pragma unroll
                        for (int e = 0; e < 8; e++) sum += plain(x[k].v[e]) * plain(y[k].v[e]);
                    }
#pragma unroll
                    for (int m = 1; m < 8; m *= 2) sum += __shfl_xor_sync(FULL_WARP, sum, m);
                    if (part == 0 && r < BLOCK_ROWS) {
                        block_rows[ts.place * BLOCK_ROWS + r] = Row{log_sum, sum};
                        rows[(u64)now.head * (order.tiles * BLOCK_ROWS) + i] = Row{log_sum, sum};
                    }
                }
                arrive(sums.full(ts));
                ts.next();
            }
        }
    } else {
        take_registers<REGISTERS>();
        int group = threadIdx.x / 128 - 1, g = LANE / 4, t = LANE % 4, warp = threadIdx.x / 32 % 4;
        float acc[D / 8][4], p[STEP / 8][4], ds[STEP / 8][4];
        Fragment weights[STEP / 16];
        float scale = (float)s.scale * LOG2E;
#if DROPOUT
        float enlarged = (float)(1 / (1 - s.p));
#endif
        Turn<STAGES> before;
        clear(p);
        clear(ds);
        for (Tasks tasks{order}; tasks.next(now);) {
            u64 b = now.head / heads, h = now.head % heads;
            int first = (order.tiles - 1 - now.tile) * BLOCK_ROWS, group_first = first + group * GROUP_ROWS;
            int start = group_first + warp * 16, row = start + g;
            int steps = steps_before(s, first + BLOCK_ROWS), own = group_first < (int)s.l ? steps_before(s, group_first + GROUP_ROWS) : 0;
            sums.until_full(ts);
            const Row* mine = block_rows + ts.place * BLOCK_ROWS + group * GROUP_ROWS + warp * 16 + g;
            Row row_sums[2] = {mine[0], mine[8]};
            sums.release(ts);
            ts.next();
            auto score = [&] {
                keys.until_full(tk);
                times_transposed<BLOCK_ROWS>(p, queries.at(tq), group, keys.at(tk));
                values.until_full(tv);
                times_transposed<BLOCK_ROWS>(ds, incoming.at(tq), group, values.at(tv));
            };
#if MASK
            // Loaded a step ahead.
            Masks masks;
            auto load_masks = [&](int n) { masks.load_queries(s, b, h, row, n * STEP + t * 2); };
            if (own > 0) load_masks(own - 1);
#endif
            auto weigh = [&](int n, bool edge) {
                int at = n * STEP;
#if DROPOUT
                u32 kept_bits = kept_by_queries(s, (now.head * s.l + (u64)row) * s.s + (u64)(at + t * 2));
#endif
                wait_for_products<2>(p);
#if MASK
                masks.apply(p, scale);
                if (n > 0) load_masks(n - 1);
#endif
#pragma unroll
                for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
#if MASK
                        p[c][e] = exp2_fast(p[c][e] - row_sums[e / 2].log_sum);
#else
                        p[c][e] = exp2_fast(fmaf(p[c][e], scale, -row_sums[e / 2].log_sum));
#endif
                    }
                }
                if (edge) {
                    hide_unseen(p, s, row, at + t * 2, 0.0f);
                }
                hold(p);
                wait_for_products<1>(ds);
                values.release(tv);
                tv.next();
#pragma unroll
                for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) p[c][e] *= DROPPED(ds[c][e], c, e) - row_sums[e / 2].delta;
                }
                hold(p);
                wait_for_products<0>(acc);
                hold(weights);
            };
            queries.until_full(tq);
            incoming.until_full(tq);
            for (int step = steps; step > own; step--) {
                keys.until_full(tk);
                keys.release(tk);
                tk.next();
                values.until_full(tv);
                values.release(tv);
                tv.next();
            }
            clear(acc);
            if (own > 0) {
                score();
                end_products();
                weigh(own - 1, true);
                as_operand(weights, p);
                before = tk;
                tk.next();
                for (int step = own - 2; step >= 0; step--) {
                    score();
                    accumulate(acc, weights, keys.at(before));
                    weigh(step, false);
                    keys.release(before);
                    as_operand(weights, p);
                    before = tk;
                    tk.next();
                }
                queries.release(tq);
                incoming.release(tq);
                accumulate(acc, weights, keys.at(before));
                wait_for_products<0>(acc);
                hold(weights);
                keys.release(before);
            } else {
                queries.release(tq);
                incoming.release(tq);
            }
            tq.next();
            store_rows(acc, (float)s.scale, (float)s.scale, dq + b * d0 + h * d1, d2, start, s.l, (int)s.d);
        }
    }
}
#endif

#ifdef KEYS
// The gradients by keys and values: rows are keys, columns queries, so that both products over queries start from
// registers. `padded`: rows of a head in `rows`.
extern "C" __global__ void __launch_bounds__(THREADS, 1) flash_hopper_keys(Spec s, Order order, const __grid_constant__ Map q_map, const __grid_constant__ Map k_map, const __grid_constant__ Map v_map, const __grid_constant__ Map dout_map, const Row* rows, u64 padded, T* dk, T* dv, u64 k0, u64 k1, u64 k2, u64 v0, u64 v1, u64 v2) {
    extern __shared__ double memory[];
    Tiles<BLOCK_ROWS, 2> keys, values;
    Tiles<STEP, STAGES, true> queries;
    Tiles<STEP, STAGES> incoming;
    Room all = room(memory);
    all.take(keys);
    all.take(values);
    all.take(queries);
    all.take(incoming);
    Row* step_rows = (Row*)all.tiles;
    room_is_laid_out();
    u32 kv_heads = (u32)s.kv_heads, shared_by = (u32)s.heads / kv_heads;
    Task now;
    int all_steps = (int)((s.l + STEP - 1) / STEP);
    Turn<2> tk;
    Turn<STAGES> tq;
    if (threadIdx.x < 128) {
        give_registers<LEFT_REGISTERS>();
        if (threadIdx.x == 0) {
            for (Tasks tasks{order}; tasks.next(now);) {
                int b = now.head / kv_heads, kh = now.head % kv_heads, first = now.tile * BLOCK_ROWS;
                keys.fill(tk, k_map, first, kh, b);
                values.fill(tk, v_map, first, kh, b);
                tk.next();
                for (int h = kh * shared_by; h < (kh + 1) * (int)shared_by; h++) {
                    const Row* from = rows + ((u64)b * s.heads + h) * padded;
                    // Skips steps before the first query that sees these keys.
                    for (int step = CAUSAL ? first / STEP : 0; step < all_steps; step++) {
                        // Threads issue their own reads before this one arrives, which racecheck would report as a
                        // race.
                        queries.until_empty(tq);
                        copy_bytes(step_rows + tq.place * STEP, from + step * STEP, STEP * sizeof(Row), queries.full(tq));
                        queries.ask(tq, q_map, step * STEP, h, b, STEP * sizeof(Row));
                        incoming.fill(tq, dout_map, step * STEP, h, b);
                        tq.next();
                    }
                }
            }
        }
    } else {
        take_registers<REGISTERS>();
        int group = threadIdx.x / 128 - 1, g = LANE / 4, t = LANE % 4, warp = threadIdx.x / 32 % 4;
        float acc_k[D / 8][4], acc_v[D / 8][4], p[STEP / 8][4], ds[STEP / 8][4];
        Fragment by_value[STEP / 16], by_key[STEP / 16];
        float scale = (float)s.scale * LOG2E;
#if DROPOUT
        float enlarged = (float)(1 / (1 - s.p));
#endif
        clear(p);
        clear(ds);
        for (Tasks tasks{order}; tasks.next(now);) {
            u32 b = now.head / kv_heads, kh = now.head % kv_heads;
            int first = now.tile * BLOCK_ROWS, group_first = first + group * GROUP_ROWS, start = group_first + warp * 16, key = start + g;
            int skipped = CAUSAL ? first / STEP : 0;
            // The current step's number, head and place, and the previous step's place.
            int step = all_steps;
            u32 h = kh * shared_by - 1, last = h + shared_by;
            Turn<STAGES> place, before;
            // Advances to the group's next step, if there is one. Skips steps of queries that see none of its keys.
            auto advance = [&] {
                while (true) {
                    if (++step >= all_steps) {
                        if (h == last || skipped >= all_steps) return false;
                        h++;
                        step = skipped;
                    }
                    place = tq;
                    tq.next();
                    queries.until_full(place);
                    incoming.until_full(place);
                    if (!CAUSAL || (step + 1) * STEP > group_first) return true;
                    queries.release(place);
                    incoming.release(place);
                }
            };
#if MASK
            Masks masks;
#endif
            // Scores become weights of the step's gradients, then, with the weights' gradients, weights of its queries.
            // Each product starts as soon as its operand is ready and overlaps with the scores of the next step. More
            // at once would not fit in registers.
            auto add = [&] {
                int at = step * STEP;
#if DROPOUT
                u32 kept_bits = kept_by_keys(s, (((u64)b * s.heads + h) * s.l + (u64)(at + t * 2)) * s.s + (u64)key);
#endif
#if MASK
                masks.apply(p, scale);
#endif
                // For two neighbouring queries each.
                const Vec<Row, 2>* sums = (const Vec<Row, 2>*)(step_rows + place.place * STEP) + t;
#pragma unroll
                for (int c = 0; c < STEP / 8; c++) {
                    Vec<Row, 2> both = sums[c * 4];
#pragma unroll
                    for (int e = 0; e < 4; e++) {
#if MASK
                        p[c][e] = exp2_fast(p[c][e] - both.v[e % 2].log_sum);
#else
                        p[c][e] = exp2_fast(fmaf(p[c][e], scale, -both.v[e % 2].log_sum));
#endif
                    }
                }
                // Queries past the end have probabilities of zero; of the others some may not see the keys.
                if (CAUSAL && at < group_first + GROUP_ROWS) {
                    int from[2] = {key - at - t * 2, key + 8 - at - t * 2};
#pragma unroll
                    for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                        for (int e = 0; e < 4; e++) p[c][e] = c * 8 + e % 2 >= from[e / 2] ? p[c][e] : 0.0f;
                    }
                }
#if DROPOUT
                float kept_p[STEP / 8][4];
#pragma unroll
                for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) kept_p[c][e] = DROPPED(p[c][e], c, e);
                }
                as_operand(by_value, kept_p);
#else
                as_operand(by_value, p);
#endif
                hold(p);
                accumulate(acc_v, by_value, incoming.at(place));
                wait_for_products<1>(ds);
#pragma unroll
                for (int c = 0; c < STEP / 8; c++) {
                    Vec<Row, 2> both = sums[c * 4];
#pragma unroll
                    for (int e = 0; e < 4; e++) ds[c][e] = p[c][e] * (DROPPED(ds[c][e], c, e) - both.v[e % 2].delta);
                }
                as_operand(by_key, ds);
                hold(ds);
                accumulate(acc_k, by_key, queries.at(place));
            };
            auto release = [&](const Turn<STAGES>& t) {
                queries.release(t);
                incoming.release(t);
            };
            // The products of a step's scores, and the mask meanwhile.
            auto score = [&] {
                times_transposed<BLOCK_ROWS>(p, keys.at(tk), group, queries.at(place));
#if MASK
                masks.load_keys(s, b, h, step * STEP + t * 2, key);
#endif
            };
            keys.until_full(tk);
            values.until_full(tk);
            clear(acc_k);
            clear(acc_v);
            if (advance()) {
                score();
                times_transposed<BLOCK_ROWS>(ds, values.at(tk), group, incoming.at(place));
                wait_for_products<1>(p);
                while (true) {
                    add();
                    before = place;
                    if (!advance()) break;
                    score();
                    wait_for_products<1>(acc_v);
                    hold(acc_k);
                    hold(by_value);
                    hold(by_key);
                    release(before);
                    times_transposed<BLOCK_ROWS>(ds, values.at(tk), group, incoming.at(place));
                    wait_for_products<1>(p);
                }
                keys.release(tk);
                values.release(tk);
                wait_for_products<0>(acc_k);
                hold(acc_v);
                hold(by_value);
                hold(by_key);
                release(before);
            } else {
                keys.release(tk);
                values.release(tk);
            }
            tk.next();
            store_rows(acc_k, (float)s.scale, (float)s.scale, dk + (u64)b * k0 + (u64)kh * k1, k2, start, s.s, (int)s.d);
            store_rows(acc_v, 1.0f, 1.0f, dv + (u64)b * v0 + (u64)kh * v1, v2, start, s.s, (int)s.d);
        }
    }
}
#endif
