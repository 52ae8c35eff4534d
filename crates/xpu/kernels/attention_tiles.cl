// Attention on a CPU: a work item takes a tile of TILE queries through the keys that they see, BLOCK keys at a time.
// Scores of a tile are transposed, [key][query]: a vector has the queries of one key, so softmax needs no sums over the
// lanes of a vector. Blocks of keys and values are copied to private memory with constant strides, so sums of products
// need no address arithmetic.
//
// In addition to the definitions of attention.cl: keys and values have type R and contiguous rows. HEAD is the maximum
// head size.

#define TILE (3 * LANES)
#define BLOCK 48
#define COLUMNS (2 * LANES)
#define ROUNDED(size) (((size) + COLUMNS - 1) / COLUMNS * COLUMNS)

// Private memory aligned to cache lines: a vector that crosses a line costs twice the time.
#define LINES __attribute__((aligned(64))) R

// Strides of keys and values: of images, heads and keys.
typedef struct { long q[4], out[4], dout[4], dq[4], keys[3], values[3]; ulong d, dv; } Tensors;

// sums[r][v] += left[r * row + k * step] * right[k * across + v * LANES] for all r, v and k below `depth`. All indices
// are constants, so that sums stay in registers.
#define MULTIPLY(sums, rows, vectors, left, row, step, right, across, depth)                                        \
    for (size_t k = 0; k < (depth); k++) {                                                                          \
        V some[vectors];                                                                                            \
        _Pragma("unroll") for (int v = 0; v < vectors; v++) some[v] = READ_OWN((right) + k * (across) + v * LANES); \
        _Pragma("unroll") for (int r = 0; r < rows; r++) {                                                          \
            const V x = (V)((left)[r * (row) + k * (step)]);                                                        \
            _Pragma("unroll") for (int v = 0; v < vectors; v++) sums[r][v] = fma(x, some[v], sums[r][v]);           \
        }                                                                                                           \
    }
// Runs `work` for each vector of sums.
#define EACH_SUM(rows, vectors, work)                                 \
    _Pragma("unroll") for (int r = 0; r < rows; r++) {                \
        _Pragma("unroll") for (int v = 0; v < vectors; v++) { work; } \
    }

// Multiplies keys (or values) of the block by columns, [element][TILE]: runs `work` for each vector of the products of
// key `key` of the block.
#define SCORES(keys_of, size, columns, work)                     \
    for (int at = 0; at < keys; at += 8) {                       \
        V sums[8][3];                                            \
        EACH_SUM(8, 3, sums[r][v] = (V)(R)0)                     \
        const R* left = (keys_of) + at * HEAD;                   \
        MULTIPLY(sums, 8, 3, left, HEAD, 1, columns, TILE, size) \
        EACH_SUM(8, 3, const int key = at + r; work)             \
    }

// Multiplies a block of weights, [key][query], by keys (or values) of the block and adds to `to`: [TILE][HEAD].
#define GATHER(to, weights, keys_of, size)                                                                     \
    for (int query = 0; query < TILE; query += 12) {                                                           \
        for (int c = 0; c < (size); c += COLUMNS) {                                                            \
            V sums[12][2];                                                                                     \
            EACH_SUM(12, 2, sums[r][v] = (V)(R)0)                                                              \
            const R *left = (weights) + query, *right = (keys_of) + c;                                         \
            MULTIPLY(sums, 12, 2, left, 1, TILE, right, HEAD, keys)                                            \
            R* place = (to) + query * HEAD + c;                                                                \
            EACH_SUM(12, 2, R* own = place + r * HEAD + v * LANES; WRITE_OWN(sums[r][v] + READ_OWN(own), own)) \
        }                                                                                                      \
    }

// Multiplies a block of weights by rows of the tile, [TILE][HEAD], and adds to the sums of its keys, rows of `width`.
#define SPREAD(to, weights, rows_of, size)                                   \
    for (int at = 0; at < keys; at += 12) {                                  \
        for (int c = 0; c < (size); c += COLUMNS) {                          \
            V sums[12][2];                                                   \
            EACH_SUM(12, 2, sums[r][v] = (V)(R)0)                            \
            const R *left = (weights) + at * TILE, *right = (rows_of) + c;   \
            MULTIPLY(sums, 12, 2, left, TILE, 1, right, HEAD, TILE)          \
            __global R* place = (to) + (block + at) * width + c;             \
            EACH_SUM(12, 2, __global R* own = place + r * width + v * LANES; \
                     WRITE_GLOBAL(sums[r][v] + READ_GLOBAL(own), own))       \
        }                                                                    \
    }

// Copies rows of the tile as R times a factor, [TILE][HEAD]; missing rows are zeros.
#define FETCH(to, from, strides, size, factor)                                                                        \
    for (int r = 0; r < TILE; r++) {                                                                                  \
        const __global T* line = (from) + (long)r * (strides)[2];                                                     \
        if (r >= rows) {                                                                                              \
            for (size_t c = 0; c < (size); c += LANES) WRITE_OWN((V)(R)0, (to) + r * HEAD + c);                       \
        } else if ((strides)[3] == 1) {                                                                               \
            for (size_t c = 0; c < (size); c += LANES)                                                                \
                WRITE_OWN((factor) * load_part_T(line, c, size, (R)0), (to) + r * HEAD + c);                          \
        } else {                                                                                                      \
            for (size_t c = 0; c < (size); c++) (to)[r * HEAD + c] = (factor) * LOAD_T(line, (long)c * (strides)[3]); \
        }                                                                                                             \
    }

// Copies keys (or values) of the block, [BLOCK][HEAD]; missing rows are zeros.
#define FETCH_KEYS(to, from, stride, size)                                                                     \
    {                                                                                                          \
        const __global R* line = (from) + (long)block * (stride);                                              \
        if (keys == BLOCK && (size) == HEAD) {                                                                 \
            for (int key = 0; key < BLOCK; key++, line += (stride)) {                                          \
                _Pragma("unroll") for (int c = 0; c < HEAD; c += LANES)                                        \
                    WRITE_OWN(READ_GLOBAL(line + c), (to) + key * HEAD + c);                                   \
            }                                                                                                  \
        } else {                                                                                               \
            for (int key = 0; key < BLOCK; key++, line += (stride)) {                                          \
                for (size_t c = 0; c < (size); c += LANES)                                                     \
                    WRITE_OWN(key < keys ? load_part_S(line, c, size, (R)0) : (V)(R)0, (to) + key * HEAD + c); \
            }                                                                                                  \
        }                                                                                                      \
    }

// Transposes rows of the tile, [element][TILE].
#define TURN(to, from, size)                                                                        \
    for (size_t c = 0; c < (size); c++) {                                                           \
        _Pragma("unroll") for (int r = 0; r < TILE; r++) (to)[c * TILE + r] = (from)[r * HEAD + c]; \
    }

// Writes rows of the tile, each times its factor.
#define PUT(to, from, strides, size, factor)                                                                         \
    for (int r = 0; r < rows; r++) {                                                                                 \
        __global T* line = (to) + (long)r * (strides)[2];                                                            \
        const R times = (factor);                                                                                    \
        if ((strides)[3] == 1) {                                                                                     \
            for (size_t c = 0; c < (size); c += LANES)                                                               \
                store_part_T(line, c, size, times * READ_OWN((from) + r * HEAD + c));                                \
        } else {                                                                                                     \
            for (size_t c = 0; c < (size); c++) STORE_T(line, (long)c * (strides)[3], times * (from)[r * HEAD + c]); \
        }                                                                                                            \
    }

#define START(strides) (image * (strides)[0] + head * (strides)[1] + (long)first * (strides)[2])

#define HEAD_PLACES                                     \
    const size_t z = get_group_id(1);                   \
    const long image = z / b.heads, head = z % b.heads; \
    keys_of += image * t.keys[0] + head * t.keys[1];    \
    values += image * t.values[0] + head * t.values[1]; \
    mask += image * b.mask[0] + head * b.mask[1];

// Declares a tile's first row, its number of rows, and the number of keys that its last and its first row see.
#define TILE_PLACES                                                         \
    const size_t first = tile * TILE;                                       \
    const int rows = first + TILE <= b.rows ? TILE : (int)(b.rows - first); \
    const size_t top_row = b.first + first, end = top_row + rows,           \
        seen = b.causal && end < b.s ? end : b.s, seen_by_all = b.causal && top_row + 1 < b.s ? top_row + 1 : b.s;

// Declares a block's number of keys and, per query, the last key of the block that it sees.
#define BLOCK_PLACES                                                                             \
    const int keys = seen - block < BLOCK ? (int)(seen - block) : BLOCK;                         \
    const int all_seen = block + BLOCK <= seen_by_all;                                           \
    LINES last[TILE];                                                                            \
    if (!all_seen) {                                                                             \
        for (int r = 0; r < TILE; r++) {                                                         \
            const size_t end_of_row = b.causal && top_row + r + 1 < b.s ? top_row + r + 1 : b.s; \
            last[r] = (R)((long)end_of_row - 1 - (long)block);                                   \
        }                                                                                        \
    }

// Scores of a key of the block with the mask applied; -inf for queries that do not see it. `row_mask`: the mask at the
// vector's first row and the block's first key.
inline V seen_scores(V x, const __global M* row_mask, const long* strides, int key, const R* last, int all_seen,
                     int rows, int keys) {
#if MASK != 0
    R some[LANES];
    WRITE_OWN(x, some);
    for (int l = 0; l < LANES && l < rows && key < keys; l++) {
        const long at = (long)l * strides[2] + (long)key * strides[3];
#if MASK == 1
        if (!row_mask[at]) some[l] = -INFINITY;
#else
        some[l] += (R)LOAD_M(row_mask, at);
#endif
    }
    x = READ_OWN(some);
#endif
    return all_seen ? x : CHOOSE((V)(R)key > READ_OWN(last), (V)(R)-INFINITY, x);
}
#define SEEN(x)                                                                                           \
    seen_scores(x, mask + (long)(top_row + v * LANES) * b.mask[2] + (long)block * b.mask[3], b.mask, key, \
                last + v * LANES, all_seen, rows - v * LANES, keys)

// Dropout factors of the block's weights: zero if dropped, else `scale`.
#if DROPOUT
#define KEPT(kept)                                                                          \
    for (int q = 0; q < TILE; q++) {                                                        \
        const size_t position = top_row + q;                                                \
        const ulong word = FIRST_WORD + block;                                              \
        ulong have = ~(ulong)0;                                                             \
        uint words[4];                                                                      \
        for (int j = 0; j < keys; j++) {                                                    \
            const ulong w = word + j;                                                       \
            if (w / 4 != have && q < rows) {                                                \
                have = w / 4;                                                               \
                vstore4(philox_block(b.seed, b.offset, have), 0, words);                    \
            }                                                                               \
            (kept)[j * TILE + q] = q >= rows || words[w % 4] >> 8 < b.below ? (R)0 : scale; \
        }                                                                                   \
    }
#define KEEP(x, kept, place) ((x) * READ_OWN((kept) + (place)))
#else
#define KEPT(kept)
#define KEEP(x, kept, place) (x)
#endif
#define KEPT_SIZE (DROPOUT ? BLOCK * TILE : 1)

PARTS(T)

#ifdef TILES_FORWARD
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_tiles(const Block b, const Tensors t, const __global T* q, const __global R* keys_of,
                     const __global R* values, const __global M* mask, __global R* lse, const ulong lse_image,
                     const ulong lse_head, __global T* out, const R scale, const R factor) {
    HEAD_PLACES
    // With a causal mask the longest tiles start first, so that no core finishes late.
    const size_t tile = b.causal ? get_num_groups(0) - 1 - get_group_id(0) : get_group_id(0);
    TILE_PLACES
    LINES queries[HEAD * TILE], result[TILE * HEAD], own_keys[BLOCK * HEAD], scores[BLOCK * TILE], kept[KEPT_SIZE];
    LINES fades[TILE], tops[TILE], totals[TILE];
    FETCH(result, q + START(t.q), t.q, t.d, factor)
    TURN(queries, result, t.d)
    for (int r = 0; r < TILE; r++) {
        for (size_t c = 0; c < ROUNDED(t.dv); c += LANES) WRITE_OWN((V)(R)0, result + r * HEAD + c);
        tops[r] = -INFINITY;
        totals[r] = 0;
    }
    for (size_t block = 0; block < seen; block += BLOCK) {
        BLOCK_PLACES
        FETCH_KEYS(own_keys, keys_of, t.keys[2], t.d)
        V best[3];
        _Pragma("unroll") for (int v = 0; v < 3; v++) best[v] = READ_OWN(tops + v * LANES);
        SCORES(own_keys, t.d, queries, const V x = SEEN(sums[r][v]); best[v] = LARGER(best[v], x);
               WRITE_OWN(x, scores + key * TILE + v * LANES))
        KEPT(kept)
        _Pragma("unroll") for (int v = 0; v < 3; v++) {
            // If every key is masked out, any finite reference gives exponentials of zero.
            const V reference = CHOOSE(best[v] == (V)(R)-INFINITY, (V)(R)0, best[v]);
            const V fade = EXP_DOWN(READ_OWN(tops + v * LANES) - reference);
            V sum = (V)(R)0;
            for (int i = v * LANES; i < keys * TILE; i += TILE) {
                const V e = EXP_DOWN(READ_OWN(scores + i) - reference);
                sum += e;
                WRITE_OWN(KEEP(e, kept, i), scores + i);
            }
            WRITE_OWN(fma(READ_OWN(totals + v * LANES), fade, sum), totals + v * LANES);
            WRITE_OWN(fade, fades + v * LANES);
            WRITE_OWN(best[v], tops + v * LANES);
        }
        for (int r = 0; r < TILE; r++) {
            if (fades[r] == 1) continue;
            for (size_t c = 0; c < t.dv; c += LANES)
                WRITE_OWN(READ_OWN(result + r * HEAD + c) * fades[r], result + r * HEAD + c);
        }
        FETCH_KEYS(own_keys, values, t.values[2], t.dv)
        GATHER(result, scores, own_keys, t.dv)
    }
    __global T* to = out + START(t.out);
    PUT(to, result, t.out, t.dv, totals[r] == 0 ? (R)0 : (R)1 / totals[r])
    for (int r = 0; r < rows; r++) {
        const R top = tops[r] == -INFINITY ? 0 : tops[r];
        lse[image * lse_image + head * lse_head + top_row + r] = top + log(totals[r]);
    }
}
#endif

#ifdef TILES_BACKWARD
// The gradients of queries, and partial sums for the gradients of keys and values: [z][share][key][elements of a key,
// of a value]. A work item takes every shares-th tile of a head and has its own sums, for `padded` keys.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_tiles_backward(const Block b, const Tensors t, const __global T* q, const __global R* keys_of,
                              const __global R* values, const __global M* mask, const __global R* lse,
                              const ulong lse_image, const ulong lse_head, const __global T* out,
                              const __global T* dout, __global T* dq, __global R* all_sums, const ulong padded,
                              const R scale, const R factor) {
    HEAD_PLACES
    LINES queries[TILE * HEAD], queries_across[HEAD * TILE], gradients[TILE * HEAD], gradients_across[HEAD * TILE];
    LINES result[TILE * HEAD], own_keys[BLOCK * HEAD], own_values[BLOCK * HEAD];
    LINES weights[BLOCK * TILE], slopes[BLOCK * TILE], kept[KEPT_SIZE], deltas[TILE], alls[TILE];
    const size_t shares = get_num_groups(0), share = get_group_id(0), width = ROUNDED(t.d) + ROUNDED(t.dv);
    __global R *sums_of_keys = all_sums + (z * shares + share) * padded * width,
               *sums_of_values = sums_of_keys + ROUNDED(t.d);
    for (size_t i = 0; i < padded * width; i += LANES) WRITE_GLOBAL((V)(R)0, sums_of_keys + i);
    for (long tile = (long)((b.rows + TILE - 1) / TILE) - 1 - (long)share; tile >= 0; tile -= (long)shares) {
        TILE_PLACES
        FETCH(queries, q + START(t.q), t.q, t.d, factor)
        TURN(queries_across, queries, t.d)
        FETCH(gradients, dout + START(t.dout), t.dout, t.dv, (R)1)
        TURN(gradients_across, gradients, t.dv)
        const __global T* rows_of_out = out + START(t.out);
        for (int r = 0; r < TILE; r++) {
            R delta = 0, all = INFINITY;
            if (r < rows) {
                const __global T* line = rows_of_out + (long)r * t.out[2];
                if (t.out[3] == 1) {
                    V some = (V)(R)0;
                    for (size_t c = 0; c < t.dv; c += LANES)
                        some += load_part_T(line, c, t.dv, (R)0) * READ_OWN(gradients + r * HEAD + c);
                    delta = sum_of(some);
                } else {
                    for (size_t c = 0; c < t.dv; c++)
                        delta += LOAD_T(line, (long)c * t.out[3]) * gradients[r * HEAD + c];
                }
                all = lse[image * lse_image + head * lse_head + top_row + r];
            }
            deltas[r] = delta;
            // The probabilities of a query that sees no key are zero.
            alls[r] = all == -INFINITY ? INFINITY : all;
            for (size_t c = 0; c < ROUNDED(t.d); c += LANES) WRITE_OWN((V)(R)0, result + r * HEAD + c);
        }
        for (size_t block = 0; block < seen; block += BLOCK) {
            BLOCK_PLACES
            FETCH_KEYS(own_keys, keys_of, t.keys[2], t.d)
            FETCH_KEYS(own_values, values, t.values[2], t.dv)
            SCORES(own_keys, t.d, queries_across, WRITE_OWN(SEEN(sums[r][v]), weights + key * TILE + v * LANES))
            SCORES(own_values, t.dv, gradients_across, WRITE_OWN(sums[r][v], slopes + key * TILE + v * LANES))
            KEPT(kept)
            _Pragma("unroll") for (int v = 0; v < 3; v++) {
                const V all = READ_OWN(alls + v * LANES), delta = READ_OWN(deltas + v * LANES);
                for (int i = v * LANES; i < keys * TILE; i += TILE) {
                    const V p = EXP_DOWN(READ_OWN(weights + i) - all);
                    WRITE_OWN(p * (KEEP(READ_OWN(slopes + i), kept, i) - delta), slopes + i);
                    WRITE_OWN(KEEP(p, kept, i), weights + i);
                }
            }
            for (int i = keys * TILE; i < BLOCK * TILE; i += LANES) {
                WRITE_OWN((V)(R)0, weights + i);
                WRITE_OWN((V)(R)0, slopes + i);
            }
            GATHER(result, slopes, own_keys, t.d)
            SPREAD(sums_of_values, weights, gradients, t.dv)
            SPREAD(sums_of_keys, slopes, queries, t.d)
        }
        __global T* to = dq + START(t.dq);
        PUT(to, result, t.dq, t.d, factor)
    }
}
#endif

#ifdef TILES_KEYS
PARTS(O)

typedef struct { long strides[4]; ulong size; } Target;

// The gradients of keys and values: adds the sums of all shares. A work item takes BLOCK keys; the groups' third
// dimension selects keys or values.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_keys(const ulong heads, const ulong s, const ulong padded, const ulong shares,
                    const __global R* all_sums, const Target keys, __global O* dk, const Target values,
                    __global O* dv, const uint add) {
    const int of_values = get_group_id(2);
    const Target t = of_values ? values : keys;
    const size_t z = get_group_id(1), begin = get_group_id(0) * BLOCK, end = begin + BLOCK < s ? begin + BLOCK : s;
    const size_t width = ROUNDED(keys.size) + ROUNDED(values.size);
    const __global R* sums = all_sums + z * shares * padded * width + (of_values ? ROUNDED(keys.size) : 0);
    __global O* out = (of_values ? dv : dk) + (long)(z / heads) * t.strides[0] + (long)(z % heads) * t.strides[1];
    for (size_t key = begin; key < end; key++) {
        __global O* line = out + (long)key * t.strides[2];
        for (size_t i = 0; i < t.size; i += LANES) {
            V x = READ_GLOBAL(sums + key * width + i);
            for (size_t share = 1; share < shares; share++) x += READ_GLOBAL(sums + (share * padded + key) * width + i);
            if (t.strides[3] == 1) {
                if (add) x += load_part_O(line, i, t.size, (R)0);
                store_part_O(line, i, t.size, x);
            } else {
                R some[LANES];
                WRITE_OWN(x, some);
                for (int l = 0; l < LANES && i + l < t.size; l++) {
                    const long at = (long)(i + l) * t.strides[3];
                    STORE_O(line, at, some[l] + (add ? LOAD_O(line, at) : (R)0));
                }
            }
        }
    }
}
#endif
