// Attention on a CPU: a work item takes up to EACH tiles of ROWS queries through all keys, BLOCK keys at a time, which
// stay in its first cache.
//
// Beside what attention.cl needs: keys and values come packed in panels as R (see matmul.cl), transposed (COLUMNS keys
// side by side, for scores) or not (COLUMNS elements of a key side by side, for sums over keys). Heads have up to MOST
// elements.

#define COLUMNS (2 * LANES)
#define BLOCK (2 * COLUMNS)

// sums[r][v] += left[r * step + k] * right[k][v] for ROWS rows and k below `depth`. Only constant indices, so that sums
// stay in registers.
#define MULTIPLY(sums, left, step, right, depth)                                                             \
    for (size_t k = 0; k < (depth); k++) {                                                                   \
        const V near = READ_GLOBAL((right) + k * COLUMNS), far = READ_GLOBAL((right) + k * COLUMNS + LANES); \
        _Pragma("unroll") for (int r = 0; r < ROWS; r++) {                                                   \
            const V x = (V)((left)[r * (step) + k]);                                                         \
            sums[r][0] = fma(x, near, sums[r][0]);                                                           \
            sums[r][1] = fma(x, far, sums[r][1]);                                                            \
        }                                                                                                    \
    }
// `work` for each vector of sums.
#define EACH_SUM(work)                                          \
    _Pragma("unroll") for (int r = 0; r < ROWS; r++) {          \
        _Pragma("unroll") for (int v = 0; v < 2; v++) { work; } \
    }

// A block of scores: left times transposed panels.
#define SCORES(to, left, panels, depth)                                   \
    for (size_t c = 0; c < BLOCK && block + c < seen; c += COLUMNS) {     \
        V sums[ROWS][2];                                                  \
        EACH_SUM(sums[r][v] = (V)(R)0)                                    \
        const __global R* right = (panels) + (block + c) * (depth);       \
        MULTIPLY(sums, left, MOST, right, depth)                          \
        EACH_SUM(WRITE_OWN(sums[r][v], (to) + r * BLOCK + c + v * LANES)) \
    }

// A block of weights times panels of what they weigh, added to `to`: [ROWS][MOST].
#define GATHER(to, weights, panels, size)                                \
    for (size_t c = 0; c < (size); c += COLUMNS) {                       \
        V sums[ROWS][2];                                                 \
        EACH_SUM(sums[r][v] = READ_OWN((to) + r * MOST + c + v * LANES)) \
        const __global R* right = (panels) + c * b.s + block * COLUMNS;  \
        MULTIPLY(sums, weights, BLOCK, right, keys)                      \
        EACH_SUM(WRITE_OWN(sums[r][v], (to) + r * MOST + c + v * LANES)) \
    }

// Rows of the tile as R, the missing ones as zeros.
#define FETCH(to, from, strides, size, factor)                                                                        \
    for (int r = 0; r < ROWS; r++) {                                                                                  \
        const __global T* line = (from) + (long)r * (strides)[2];                                                     \
        if (r >= rows) {                                                                                              \
            for (size_t c = 0; c < (size); c += LANES) WRITE_OWN((V)(R)0, (to) + r * MOST + c);                       \
        } else if ((strides)[3] == 1) {                                                                               \
            for (size_t c = 0; c < (size); c += LANES)                                                                \
                WRITE_OWN((factor) * load_part_T(line, c, size, (R)0), (to) + r * MOST + c);                          \
        } else {                                                                                                      \
            for (size_t c = 0; c < (size); c++) (to)[r * MOST + c] = (factor) * LOAD_T(line, (long)c * (strides)[3]); \
        }                                                                                                             \
    }

// Writes rows of the tile, each times its factor.
#define PUT(to, from, strides, size, factor)                                                                         \
    for (int r = 0; r < rows; r++) {                                                                                 \
        __global T* line = (to) + (long)r * (strides)[2];                                                            \
        const R times = (factor);                                                                                    \
        if ((strides)[3] == 1) {                                                                                     \
            for (size_t c = 0; c < (size); c += LANES)                                                               \
                store_part_T(line, c, size, times * READ_OWN((from) + r * MOST + c));                                \
        } else {                                                                                                     \
            for (size_t c = 0; c < (size); c++) STORE_T(line, (long)c * (strides)[3], times * (from)[r * MOST + c]); \
        }                                                                                                            \
    }

#define START(strides) (image * (strides)[0] + head * (strides)[1] + (long)first * (strides)[2])
#define ROUNDED(size) (((size) + COLUMNS - 1) / COLUMNS * COLUMNS)

#define ITEM_PLACES                                                                                           \
    const size_t begin = get_group_id(0) * t.each * ROWS, z = get_group_id(1);                                \
    const long image = z / b.heads, head = z % b.heads;                                                       \
    const int tiles = (b.rows - begin + ROWS - 1) / ROWS < t.each ? (int)((b.rows - begin + ROWS - 1) / ROWS) \
        : (int)t.each;                                                                                        \
    mask += image * b.mask[0] + head * b.mask[1];

// Of a tile: its first row, how many there are, the keys that the last of them sees.
#define TILE_PLACES                                                         \
    const size_t first = begin + tile * ROWS;                               \
    const int rows = first + ROWS <= b.rows ? ROWS : (int)(b.rows - first); \
    const size_t end = b.first + first + rows, seen = b.causal && end < b.s ? end : b.s;

// Of a row of the tile: its number among all, the keys it sees, and how many of them lie in the block.
#define ROW_PLACES                                                                                        \
    const size_t position = b.first + first + r, n = b.causal && position + 1 < b.s ? position + 1 : b.s; \
    const __global M* row_mask = mask + (long)position * b.mask[2];                                       \
    const size_t here = n <= block ? 0 : (n - block < BLOCK ? n - block : BLOCK);

// Scores from vector i of the block on with the mask applied; what the row does not see is -inf.
inline V seen_scores(const R* scores, const __global M* mask, size_t block, size_t i, size_t n, long stride) {
    V x = masked(READ_OWN(scores + i), mask, block + i, n, stride);
    if (block + i + LANES > n) {
        R some[LANES];
        WRITE_OWN(x, some);
        for (int l = 0; l < LANES; l++) {
            if (block + i + l >= n) some[l] = -INFINITY;
        }
        x = READ_OWN(some);
    }
    return x;
}

typedef struct { long q[4], out[4], dout[4], dq[4]; ulong d, dv, keys, values, rows_of_keys, each; } Tensors;

PARTS(T)

#ifdef TILES_FORWARD
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_tiles(const Block b, const Tensors t, const __global T* q, const __global R* keys_across,
                     const __global R* values, const __global M* mask, __global R* lse, const ulong lse_image,
                     const ulong lse_head, __global T* out, const R scale, const R factor) {
    ITEM_PLACES
    R all_queries[EACH * ROWS * MOST], all_results[EACH * ROWS * MOST], scores[ROWS * BLOCK], all_tops[EACH * ROWS],
        all_totals[EACH * ROWS];
    keys_across += z * t.keys;
    values += z * t.values;
    size_t last = 0;
    for (int tile = 0; tile < tiles; tile++) {
        TILE_PLACES
        R* queries = all_queries + tile * ROWS * MOST;
        FETCH(queries, q + START(t.q), t.q, t.d, factor)
        for (int r = 0; r < ROWS; r++) {
            all_tops[tile * ROWS + r] = -INFINITY;
            all_totals[tile * ROWS + r] = 0;
            for (size_t c = 0; c < ROUNDED(t.dv); c += LANES)
                WRITE_OWN((V)(R)0, all_results + (tile * ROWS + r) * MOST + c);
        }
        last = seen;
    }
    for (size_t block = 0; block < last; block += BLOCK) {
        for (int tile = 0; tile < tiles; tile++) {
            TILE_PLACES
            if (block >= seen) continue;
            R *queries = all_queries + tile * ROWS * MOST, *result = all_results + tile * ROWS * MOST;
            R *tops = all_tops + tile * ROWS, *totals = all_totals + tile * ROWS;
            SCORES(scores, queries, keys_across, t.d)
            const size_t keys = seen - block < BLOCK ? seen - block : BLOCK;
            for (int r = 0; r < ROWS; r++) {
                R* own = scores + r * BLOCK;
                if (r >= rows) {
                    for (size_t i = 0; i < keys; i += LANES) WRITE_OWN((V)(R)0, own + i);
                    continue;
                }
                ROW_PLACES
                V best = (V)(R)-INFINITY;
                for (size_t i = 0; i < here; i += LANES) {
                    const V x = seen_scores(own, row_mask, block, i, n, b.mask[3]);
                    WRITE_OWN(x, own + i);
                    best = LARGER(best, x);
                }
                const R before = tops[r], found = largest_of(best), top = found > before ? found : before;
                // Where everything is masked out, any finite reference gives exponentials of zero.
                const R reference = top == -INFINITY ? 0 : top;
                V sum = (V)(R)0;
                size_t i = 0;
                for (; i < here; i += LANES) {
                    const V e = EXP_DOWN(READ_OWN(own + i) - reference);
                    sum += e;
                    WRITE_OWN(dropped(e, b, FIRST_WORD, block + i, scale), own + i);
                }
                for (; i < keys; i += LANES) WRITE_OWN((V)(R)0, own + i);
                if (top != before) {
                    const R fade = before == -INFINITY ? (R)0 : exp(before - reference);
                    for (size_t c = 0; c < t.dv; c += LANES)
                        WRITE_OWN(READ_OWN(result + r * MOST + c) * fade, result + r * MOST + c);
                    totals[r] *= fade;
                    tops[r] = top;
                }
                totals[r] += sum_of(sum);
            }
            GATHER(result, scores, values, t.dv)
        }
    }
    for (int tile = 0; tile < tiles; tile++) {
        TILE_PLACES
        const R *result = all_results + tile * ROWS * MOST, *tops = all_tops + tile * ROWS,
            *totals = all_totals + tile * ROWS;
        __global T* to = out + START(t.out);
        PUT(to, result, t.out, t.dv, totals[r] == 0 ? (R)0 : (R)1 / totals[r])
        for (int r = 0; r < rows; r++) {
            const R top = tops[r] == -INFINITY ? 0 : tops[r];
            lse[image * lse_image + head * lse_head + b.first + first + r] = top + log(totals[r]);
        }
    }
}
#endif

#ifdef TILES_BACKWARD
// Probabilities with dropout and the gradients of scores, both in panels of COLUMNS keys, [panel][row][COLUMNS], and
// the gradients of queries.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_tiles_backward(const Block b, const Tensors t, const __global T* q, const __global R* keys_across,
                              const __global R* keys_along, const __global R* values_across, const __global M* mask,
                              const __global R* lse, const ulong lse_image, const ulong lse_head, const __global T* out,
                              const __global T* dout, __global T* dq, __global R* weights, __global R* slopes,
                              const R scale, const R factor) {
    ITEM_PLACES
    R queries[ROWS * MOST], gradients[ROWS * MOST], scores[ROWS * BLOCK], d[ROWS * BLOCK], result[ROWS * MOST],
        alls[ROWS], deltas[ROWS];
    keys_across += z * t.keys;
    keys_along += z * t.rows_of_keys;
    values_across += z * t.values;
    weights += z * ROUNDED(b.s) * b.rows;
    slopes += z * ROUNDED(b.s) * b.rows;
    for (int tile = 0; tile < tiles; tile++) {
        TILE_PLACES
        FETCH(queries, q + START(t.q), t.q, t.d, factor)
        FETCH(gradients, dout + START(t.dout), t.dout, t.dv, (R)1)
        const __global T* rows_of_out = out + START(t.out);
        for (int r = 0; r < ROWS; r++) {
            R delta = 0, all = INFINITY;
            if (r < rows) {
                const __global T* line = rows_of_out + (long)r * t.out[2];
                if (t.out[3] == 1) {
                    V some = (V)(R)0;
                    for (size_t c = 0; c < t.dv; c += LANES)
                        some += load_part_T(line, c, t.dv, (R)0) * READ_OWN(gradients + r * MOST + c);
                    delta = sum_of(some);
                } else {
                    for (size_t c = 0; c < t.dv; c++)
                        delta += LOAD_T(line, (long)c * t.out[3]) * gradients[r * MOST + c];
                }
                all = lse[image * lse_image + head * lse_head + b.first + first + r];
            }
            deltas[r] = delta;
            // A query that sees nothing has no probabilities.
            alls[r] = all == -INFINITY ? INFINITY : all;
            for (size_t c = 0; c < ROUNDED(t.d); c += LANES) WRITE_OWN((V)(R)0, result + r * MOST + c);
        }
        for (size_t block = 0; block < seen; block += BLOCK) {
            SCORES(scores, queries, keys_across, t.d)
            SCORES(d, gradients, values_across, t.dv)
            const size_t keys = seen - block < BLOCK ? seen - block : BLOCK;
            for (int r = 0; r < ROWS; r++) {
                R* own = d + r * BLOCK;
                if (r >= rows) {
                    for (size_t i = 0; i < keys; i += LANES) WRITE_OWN((V)(R)0, own + i);
                    continue;
                }
                ROW_PLACES
                for (size_t i = 0; i < ROUNDED(keys); i += LANES) {
                    V p = (V)(R)0, slope = (V)(R)0;
                    if (i < here) {
                        p = EXP_DOWN(seen_scores(scores + r * BLOCK, row_mask, block, i, n, b.mask[3]) - alls[r]);
                        slope = p * factor * (dropped(READ_OWN(own + i), b, FIRST_WORD, block + i, scale) - deltas[r]);
                        p = dropped(p, b, FIRST_WORD, block + i, scale);
                    }
                    WRITE_OWN(slope, own + i);
                    const size_t place = ((block + i) / COLUMNS * b.rows + first + r) * COLUMNS + (block + i) % COLUMNS;
                    WRITE_GLOBAL(p, weights + place);
                    WRITE_GLOBAL(slope, slopes + place);
                }
            }
            GATHER(result, d, keys_along, t.d)
        }
        __global T* to = dq + START(t.dq);
        PUT(to, result, t.dq, t.d, (R)1)
    }
}
#endif

#ifdef TILES_KEYS
// A part's share of the gradients of values and of keys: its weights (or slopes) in panels, transposed, times gradients
// of the output (or queries) in panels along. A work item takes COLUMNS keys, KEYS at a time; the third index of groups
// chooses between values and keys.
#define KEYS 8
#define NEAR 96
PARTS(O)

typedef struct { long strides[4]; ulong rows_batch, size; } Target;

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_keys(const Block b, const Target values, const __global R* weights_of_values,
                    const __global R* rows_of_values, __global O* dv, const Target keys,
                    const __global R* weights_of_keys, const __global R* rows_of_keys, __global O* dk, const uint add) {
    const int of_keys = get_group_id(2);
    const Target t = of_keys ? keys : values;
    const __global R *weights = of_keys ? weights_of_keys : weights_of_values,
        *rows_along = of_keys ? rows_of_keys : rows_of_values;
    __global O* out = of_keys ? dk : dv;
    const long stride = t.strides[2], step = t.strides[3];
    const size_t size = t.size;
    const size_t panel = get_group_id(0), z = get_group_id(1);
    // Rows before this one see none of the keys.
    const size_t key = panel * COLUMNS, skipped = b.causal && key > b.first ? key - b.first : 0,
        begin = skipped < b.rows ? skipped : b.rows;
    weights += (z * ROUNDED(b.s) + key) * b.rows;
    rows_along += z * t.rows_batch;
    out += (long)(z / b.heads) * t.strides[0] + (long)(z % b.heads) * t.strides[1];
    // [COLUMNS][MOST]
    R sums_of_keys[COLUMNS * MOST];
    for (size_t i = 0; i < COLUMNS * MOST; i += LANES) WRITE_OWN((V)(R)0, sums_of_keys + i);
    // Rows whose weights and panels stay in the first cache.
    for (size_t near_row = begin; near_row < b.rows; near_row += NEAR) {
        const size_t far_row = near_row + NEAR < b.rows ? near_row + NEAR : b.rows;
        for (size_t c = 0; c < size; c += COLUMNS) {
            const __global R* right = rows_along + c * b.rows;
            for (size_t at = 0; at < COLUMNS && key + at < b.s; at += KEYS) {
                V sums[KEYS][2];
                R* place = sums_of_keys + at * MOST + c;
                _Pragma("unroll") for (int r = 0; r < KEYS; r++) {
                    sums[r][0] = READ_OWN(place + r * MOST);
                    sums[r][1] = READ_OWN(place + r * MOST + LANES);
                }
                for (size_t k = near_row; k < far_row; k++) {
                    const V near = READ_GLOBAL(right + k * COLUMNS), far = READ_GLOBAL(right + k * COLUMNS + LANES);
                    _Pragma("unroll") for (int r = 0; r < KEYS; r++) {
                        const V x = (V)(weights[k * COLUMNS + at + r]);
                        sums[r][0] = fma(x, near, sums[r][0]);
                        sums[r][1] = fma(x, far, sums[r][1]);
                    }
                }
                _Pragma("unroll") for (int r = 0; r < KEYS; r++) {
                    WRITE_OWN(sums[r][0], place + r * MOST);
                    WRITE_OWN(sums[r][1], place + r * MOST + LANES);
                }
            }
        }
    }
    for (size_t r = 0; r < COLUMNS && key + r < b.s; r++) {
        __global O* line = out + (long)(key + r) * stride;
        const R* own = sums_of_keys + r * MOST;
        if (step == 1) {
            for (size_t i = 0; i < size; i += LANES) {
                V x = READ_OWN(own + i);
                if (add) x += load_part_O(line, i, size, (R)0);
                store_part_O(line, i, size, x);
            }
        } else {
            for (size_t i = 0; i < size; i++) {
                STORE_O(line, (long)i * step, own[i] + (add ? LOAD_O(line, (long)i * step) : (R)0));
            }
        }
    }
}
#endif
