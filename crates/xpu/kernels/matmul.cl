// Batched matrix products: out = activation(alpha * a @ b + beta * out + bias).
//
// A, B, OUT, C: dtypes of the operands, the output and the bias; R: the type sums are kept in.

// Strides of a matrix are those of images, heads, rows and columns; batch z is head z % heads of image z / heads.
typedef struct {
    ulong heads, m, n, k;
    long a[4], b[4], out[4];
    long bias;
} Problem;

#define START(strides, z) ((long)((z) / p.heads) * (strides)[0] + (long)((z) % p.heads) * (strides)[1])

// Flags: the activation, and these.
#define WITH_BIAS 16
#define WITH_OUTPUT 32
// The bias runs along rows: the product is computed transposed.
#define BIAS_OF_ROWS 64
// Each row has its own factor, passed in the bias argument: [batch, m] of type R.
#define ROW_FACTORS 128

inline R activated(R x, uint flags) {
    if ((flags & 15) == 1) return (x > 0 || x != x) ? x : (R)0;
#if R_KIND != 2
    if ((flags & 15) == 2) return (R)0.5 * x * ((R)1 + erf(x * (R)0.7071067811865476));
    if ((flags & 15) == 3) return (R)0.5 * x * ((R)1 + tanh((R)0.7978845608028654 * (x + (R)0.044715 * x * x * x)));
#endif
    return x;
}

// One element of the result.
#define FINISH(i, j, sum)                                                                           \
    do {                                                                                            \
        const ulong i_ = (i), j_ = (j);                                                             \
        const size_t place_ = START(p.out, batch) + (long)i_ * p.out[2] + (long)j_ * p.out[3];      \
        R x_ = alpha * (sum);                                                                       \
        if (flags & ROW_FACTORS) x_ *= ((const __global R*)bias)[batch * p.m + i_];                 \
        if (flags & WITH_OUTPUT) x_ += beta * LOAD_OUT(out, place_);                                \
        if (flags & WITH_BIAS) x_ += LOAD_C(bias, (long)(flags & BIAS_OF_ROWS ? i_ : j_) * p.bias); \
        STORE_OUT(out, place_, activated(x_, flags));                                               \
    } while (0)

// Maximum products per accumulator: longer sums lose digits.
#define SUMMED 256

#ifdef PLAIN
// Any strides and dtypes: one work item per element of the output.
__kernel void matmul_plain(const Problem p, const __global A* a, const __global B* b, const __global C* bias,
                           __global OUT* out, const R alpha, const R beta, const uint codes, const uint flags) {
    const ulong j = get_global_id(0), i = get_global_id(1), batch = get_global_id(2);
    if (j >= p.n) return;
    const long row = START(p.a, batch) + (long)i * p.a[2], column = START(p.b, batch) + (long)j * p.b[3];
    R sum = 0;
    for (ulong first = 0; first < p.k; first += SUMMED) {
        const ulong last = first + SUMMED < p.k ? first + SUMMED : p.k;
        R some = 0;
        for (ulong k = first; k < last; k++)
            some += LOAD_A(a, row + (long)k * p.a[3]) * LOAD_B(b, column + (long)k * p.b[2]);
        sum += some;
    }
    FINISH(i, j, sum);
}
#endif

#if (defined(PACK) || defined(PACKS)) && defined(LANES)
// Packs panels of WIDTH neighbouring rows of a (or columns of b) as R, k outermost: a tile reads its panel
// contiguously. Rows past the end are copies of the last row; they reach no element of the result. ORDER, the
// contiguous direction of the source: 1 across the panel, 2 along k, 0 neither.
#define FOUR_MIXED(a, b) a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3
#if LANES == 16
#define MIXED(a, b, half_) (V)(FOUR_MIXED(a.half_.lo, b.half_.lo), FOUR_MIXED(a.half_.hi, b.half_.hi))
#else
#define MIXED(a, b, half_) (V)(FOUR_MIXED(a.half_, b.half_))
#endif
// One step of a transposition: rotates the index bits (row, then column) of each element by one. As many steps as a
// column index has bits swap row and column.
#define ROTATE(from, to)                                         \
    _Pragma("unroll") for (int i = 0; i < LANES / 2; i++) {      \
        to[2 * i] = MIXED(from[i], from[i + LANES / 2], lo);     \
        to[2 * i + 1] = MIXED(from[i], from[i + LANES / 2], hi); \
    }

#define PART(a, b) ((a) < (b) ? (a) : (b))

// Packs the elements from `begin` to `end` along k of the panel that starts at row `first` of `count`.
inline void pack_panel(const __global T* x, __global R* to, const ulong first, const ulong count, const ulong begin,
                       const ulong end, const long stride, const long depth_stride) {
    ulong k = begin;
#if ORDER == 1
    if (first + WIDTH <= count) {
        for (; k < end; k++) {
            const long from = (long)k * depth_stride + (long)first;
#if WIDTH % LANES == 0
            _Pragma("unroll") for (int v = 0; v < WIDTH; v += LANES)
                WRITE_GLOBAL(VLOAD_T(x, from + v), to + k * WIDTH + v);
#else
            _Pragma("unroll") for (int v = 0; v < WIDTH; v++) to[k * WIDTH + v] = LOAD_T(x, from + v);
#endif
        }
        return;
    }
#endif
#if ORDER == 2
    for (; k + LANES <= end; k += LANES) {
        _Pragma("unroll") for (int part = 0; part < WIDTH; part += LANES) {
            V rows[LANES], turned[LANES];
            _Pragma("unroll") for (int v = 0; v < LANES; v++)
                rows[v] = VLOAD_T(x, (long)PART(first + PART(part + v, WIDTH - 1), count - 1) * stride + (long)k);
            ROTATE(rows, turned) ROTATE(turned, rows) ROTATE(rows, turned)
#if LANES == 16
            ROTATE(turned, rows)
#define TURNED rows
#else
#define TURNED turned
#endif
            _Pragma("unroll") for (int l = 0; l < LANES; l++) {
                __global R* place = to + (k + l) * WIDTH + part;
                if (part + LANES <= WIDTH) WRITE_GLOBAL(TURNED[l], place);
#if WIDTH % 8 == 4
                else {
#if LANES == 16
                    vstore8(TURNED[l].lo, 0, place);
                    vstore4(TURNED[l].hi.lo, 0, place + 8);
#else
                    vstore4(TURNED[l].lo, 0, place);
#endif
                }
#endif
            }
        }
    }
#endif
    for (; k < end; k++) {
        for (int v = 0; v < WIDTH; v++)
            to[k * WIDTH + v] = LOAD_T(x, (long)PART(first + v, count - 1) * stride + (long)k * depth_stride);
    }
}
#endif

#if defined(PACK) && defined(LANES)
// A work item packs CHUNK elements along k of one panel.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack(const __global T* x, __global R* panels, const ulong count, const ulong depth, const long stride,
          const long depth_stride, const ulong heads, const long image_stride, const long head_stride) {
    const ulong panel = get_group_id(1), batch = get_group_id(2), begin = get_group_id(0) * CHUNK;
    x += (long)(batch / heads) * image_stride + (long)(batch % heads) * head_stride;
    __global R* to = panels + (batch * get_num_groups(1) + panel) * depth * WIDTH;
    pack_panel(x, to, panel * WIDTH, count, begin, PART(begin + CHUNK, depth), stride, depth_stride);
}
#endif

#if defined(PACK) && !defined(LANES)
// The same on a GPU: one work item per position along k; rows past the end are zeros.
__kernel void pack(const __global T* x, __global R* panels, const ulong count, const ulong depth, const long stride,
                   const long depth_stride, const ulong heads, const long image_stride, const long head_stride) {
    const ulong k = get_global_id(0), panel = get_global_id(1), batch = get_global_id(2);
    if (k >= depth) return;
    const ulong first = panel * WIDTH;
    const long from = (long)(batch / heads) * image_stride + (long)(batch % heads) * head_stride
        + (long)k * depth_stride;
    __global R* to = panels + ((batch * get_num_groups(1) + panel) * depth + k) * WIDTH;
    for (int v = 0; v < WIDTH; v++) to[v] = first + v < count ? LOAD_T(x, from + (long)(first + v) * stride) : (R)0;
}
#endif

#ifdef MATRIX_VECTOR
// A matrix times a vector on a CPU: reads every element of the matrix once, in memory order. A: the dtype of
// the matrix; the vector is of type R.
PARTS(A)

#if BY_ROWS
// Rows of the matrix and the vector are contiguous. A work item has EACH rows, four at a time.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void matrix_vector(const Problem p, const __global A* a, const __global R* b, const __global C* bias, __global OUT* out,
                   const R alpha, const R beta, const uint flags) {
    const ulong batch = get_group_id(1), begin = get_group_id(0) * EACH;
    const ulong end = begin + EACH < p.m ? begin + EACH : p.m;
    a += START(p.a, batch);
    b += START(p.b, batch);
    for (ulong i = begin; i < end; i += 4) {
        // Rows past the end repeat the last row and are not written.
        const __global A* lines[4];
        R sums[4];
        _Pragma("unroll") for (int r = 0; r < 4; r++) {
            lines[r] = a + (long)(i + r < end ? i + r : end - 1) * p.a[2];
            sums[r] = 0;
        }
        for (ulong first = 0; first < p.k; first += SUMMED * LANES) {
            const ulong last = first + SUMMED * LANES < p.k ? first + SUMMED * LANES : p.k;
            V acc[4];
            _Pragma("unroll") for (int r = 0; r < 4; r++) acc[r] = (V)(R)0;
            ulong k = first;
            for (; k + LANES <= last; k += LANES) {
                const V x = READ_GLOBAL(b + k);
                _Pragma("unroll") for (int r = 0; r < 4; r++) acc[r] = fma(VLOAD_A(lines[r], k), x, acc[r]);
            }
            _Pragma("unroll") for (int r = 0; r < 4; r++) sums[r] += sum_of(acc[r]);
            for (; k < last; k++) {
                _Pragma("unroll") for (int r = 0; r < 4; r++) sums[r] = fma((R)LOAD_A(lines[r], k), b[k], sums[r]);
            }
        }
        _Pragma("unroll") for (int r = 0; r < 4; r++) {
            if (i + r < end) FINISH(i + r, 0, sums[r]);
        }
    }
}
#else
// Columns of the matrix are contiguous. A work item has 8 * LANES neighbouring rows.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void matrix_vector(const Problem p, const __global A* a, const __global R* b, const __global C* bias, __global OUT* out,
                   const R alpha, const R beta, const uint flags) {
    const ulong batch = get_group_id(1), i = get_group_id(0) * (8 * LANES);
    a += START(p.a, batch);
    b += START(p.b, batch);
    V sums[8];
    _Pragma("unroll") for (int v = 0; v < 8; v++) sums[v] = (V)(R)0;
    for (ulong first = 0; first < p.k; first += SUMMED) {
        const ulong last = first + SUMMED < p.k ? first + SUMMED : p.k;
        V acc[8];
        _Pragma("unroll") for (int v = 0; v < 8; v++) acc[v] = (V)(R)0;
        if (i + 8 * LANES <= p.m) {
            for (ulong k = first; k < last; k++) {
                const __global A* line = a + (long)k * p.a[3];
                const V x = (V)b[(long)k * p.b[2]];
                _Pragma("unroll") for (int v = 0; v < 8; v++) acc[v] = fma(VLOAD_A(line, i + v * LANES), x, acc[v]);
            }
        } else {
            for (ulong k = first; k < last; k++) {
                const __global A* line = a + (long)k * p.a[3];
                const V x = (V)b[(long)k * p.b[2]];
                _Pragma("unroll") for (int v = 0; v < 8; v++) {
                    if (i + v * LANES < p.m) acc[v] = fma(load_part_A(line, i + v * LANES, p.m, (R)0), x, acc[v]);
                }
            }
        }
        _Pragma("unroll") for (int v = 0; v < 8; v++) sums[v] += acc[v];
    }
    R all[8 * LANES];
    _Pragma("unroll") for (int v = 0; v < 8; v++) WRITE_OWN(sums[v], all + v * LANES);
    for (int r = 0; r < 8 * LANES && i + r < p.m; r++) FINISH(i + r, 0, all[r]);
}
#endif
#endif

#if defined(TILES) && defined(LANES)
// A tile of ROWS rows and VECTORS vectors of columns in the registers of one core.
#define COLUMNS (VECTORS * LANES)

inline V activated_vector(V x, uint flags) {
    if ((flags & 15) == 1) return CHOOSE(x <= (V)(R)0, (V)(R)0, x);
    if ((flags & 15) == 2) return (R)0.5 * x * ((R)1 + erf(x * (R)0.7071067811865476));
    if ((flags & 15) == 3) return (R)0.5 * x * ((R)1 + tanh((R)0.7978845608028654 * (x + (R)0.044715 * x * x * x)));
    return x;
}

// Layout of the left operand. 0: packed in panels. 1: contiguous rows. 2: contiguous columns.
#if LEFT_FORM == 0
#define LEFT(r, k) left[(k) * ROWS + (r)]
#elif LEFT_FORM == 1
#define LEFT(r, k) left[(r) * p.a[2] + (long)(k)]
#else
#define LEFT(r, k) left[(long)(k) * p.a[3] + (r)]
#endif

// Layout of the right operand. 0: packed in panels. 1: contiguous rows. 2 and 3: contiguous rows or columns, and each
// work item packs the panel of its tiles.
#if RIGHT_FORM != 1
#define RIGHT(k, v) (right + (k) * COLUMNS + (v) * LANES)
#else
#define RIGHT(k, v) (right + (long)(k) * p.b[2] + (v) * LANES)
#endif

// Runs `work` for each vector of a tile.
#define EACH_OF_TILE(COUNT, work)                                     \
    _Pragma("unroll") for (int r = 0; r < COUNT; r++) {               \
        _Pragma("unroll") for (int v = 0; v < VECTORS; v++) { work; } \
    }

// Multiplies COUNT rows from row `first` on. All indices are constants, so that sums of SUMMED products stay in
// registers; `acc` accumulates them.
#define TILE(COUNT, first)                                                                                             \
    do {                                                                                                               \
        V acc[COUNT][VECTORS];                                                                                         \
        EACH_OF_TILE(COUNT, acc[r][v] = (V)(R)0)                                                                       \
        for (ulong block = 0; block < p.k; block += SUMMED) {                                                          \
            const ulong end = block + SUMMED < p.k ? block + SUMMED : p.k;                                             \
            V sums[COUNT][VECTORS];                                                                                    \
            EACH_OF_TILE(COUNT, sums[r][v] = (V)(R)0)                                                                  \
            for (ulong k = block; k < end; k++) {                                                                      \
                V columns[VECTORS];                                                                                    \
                _Pragma("unroll") for (int v = 0; v < VECTORS; v++) columns[v] = READ_GLOBAL(RIGHT(k, v));             \
                _Pragma("unroll") for (int r = 0; r < COUNT; r++) {                                                    \
                    const V row = (V)LEFT(r, k);                                                                       \
                    _Pragma("unroll") for (int v = 0; v < VECTORS; v++) sums[r][v] = fma(row, columns[v], sums[r][v]); \
                }                                                                                                      \
            }                                                                                                          \
            EACH_OF_TILE(COUNT, acc[r][v] += sums[r][v])                                                               \
        }                                                                                                              \
        if (whole) {                                                                                                   \
            _Pragma("unroll") for (int r = 0; r < COUNT; r++) {                                                        \
                _Pragma("unroll") for (int v = 0; v < VECTORS; v++) {                                                  \
                    const size_t place = START(p.out, batch) + (long)((first) + r) * p.out[2]                          \
                        + (long)(column + v * LANES);                                                                  \
                    V x = alpha * acc[r][v];                                                                           \
                    if (flags & ROW_FACTORS) x *= ((const __global R*)bias)[batch * p.m + (first) + r];                \
                    if (flags & WITH_OUTPUT) x += beta * VLOAD_OUT(out, place);                                        \
                    if (flags & WITH_BIAS) x += VLOAD_C(bias, column + v * LANES);                                     \
                    if (flags & 15) x = activated_vector(x, flags);                                                    \
                    VSTORE_OUT(out, place, x);                                                                         \
                }                                                                                                      \
            }                                                                                                          \
        } else {                                                                                                       \
            R tile[(COUNT) * COLUMNS];                                                                                 \
            _Pragma("unroll") for (int r = 0; r < COUNT; r++) {                                                        \
                _Pragma("unroll") for (int v = 0; v < VECTORS; v++)                                                    \
                    WRITE_V(acc[r][v], tile + r * COLUMNS + v * LANES);                                                \
            }                                                                                                          \
            const int rows = (first) + COUNT <= p.m ? COUNT : (int)(p.m - (first));                                    \
            const int across = column + COLUMNS <= p.n ? COLUMNS : (int)(p.n - column);                                \
            _Pragma("unroll 1") for (int c = 0; c < across; c++) {                                                     \
                _Pragma("unroll 1") for (int r = 0; r < rows; r++)                                                     \
                    FINISH((first) + r, column + c, tile[r * COLUMNS + c]);                                            \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

// A work item has one tile. With PACKS it packs a panel and has `near` neighbouring tiles of that column.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void matmul_tiles(const Problem p, const __global R* a, const __global R* b, const ulong a_batch, const ulong b_batch,
                  const __global C* bias, __global OUT* out, const R alpha, const R beta, const uint flags,
                  const uint row_tiles, const uint column_tiles, const uint near, __global R* panels) {
    const ulong batch = get_group_id(1);
    const uint id = get_group_id(0);
#ifdef PACKS
    const ulong column_tile = id % column_tiles, column = column_tile * COLUMNS;
    const uint first_tile = id / column_tiles * near;
    const uint last_tile = first_tile + near < row_tiles ? first_tile + near : row_tiles;
    __global R* right = panels + (batch * get_num_groups(0) + id) * p.k * COLUMNS;
    pack_panel(b + START(p.b, batch), right, column, p.n, 0, p.k, p.b[3], p.b[2]);
#else
    // Walks `near` neighbouring columns of tiles row by row: their panels and the row's panel stay in the cache.
    const uint strip = id / (near * row_tiles), place = id % (near * row_tiles);
    const uint width = (strip + 1) * near <= column_tiles ? near : column_tiles - strip * near;
    const uint first_tile = place / width, last_tile = first_tile + 1;
    const ulong column_tile = strip * near + place % width, column = column_tile * COLUMNS;
#endif
#if RIGHT_FORM == 0
    const __global R* right = b + batch * b_batch + column_tile * p.k * COLUMNS;
#elif RIGHT_FORM == 1
    const __global R* right = b + START(p.b, batch) + (long)column;
#endif
    for (uint row_tile = first_tile; row_tile < last_tile; row_tile++) {
        const ulong row = (ulong)row_tile * ROWS;
        // Whether rows of the tile are written as vectors.
        const int whole = p.out[3] == 1 && column + COLUMNS <= p.n
            && (!(flags & WITH_BIAS) || (p.bias == 1 && !(flags & BIAS_OF_ROWS)))
                          && (LEFT_FORM != 0 || row + ROWS <= p.m);
#if LEFT_FORM == 0
        const __global R* left = a + batch * a_batch + (ulong)row_tile * p.k * ROWS;
        TILE(ROWS, row);
#else
        const __global R* matrix = a + START(p.a, batch);
        if (row + ROWS <= p.m) {
            const __global R* left = matrix + (long)row * p.a[2];
            TILE(ROWS, row);
            continue;
        }
        // The last rows use smaller tiles: reads past the end are not allowed.
        ulong i = row;
        for (; i + 4 <= p.m; i += 4) {
            const __global R* left = matrix + (long)i * p.a[2];
            TILE(4, i);
        }
        for (; i < p.m; i++) {
            const __global R* left = matrix + (long)i * p.a[2];
            TILE(1, i);
        }
#endif
    }
}
#endif

#if defined(TILES) && !defined(LANES)
// A tile of 64 by 64 for 16 by 16 work items with 4 by 4 elements each; DEPTH elements along k at a time in local
// memory.
#define DEPTH 16
__kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void matmul_tiles(const Problem p, const __global R* a, const __global R* b, const ulong a_batch, const ulong b_batch,
                  const __global C* bias, __global OUT* out, const R alpha, const R beta, const uint flags) {
    __local R left[DEPTH * 64], right[DEPTH * 64];
    const uint x = get_local_id(0), y = get_local_id(1), item = y * 16 + x;
    const ulong batch = get_group_id(2);
    const __global R* from_left = a + batch * a_batch + get_group_id(0) * p.k * 64;
    const __global R* from_right = b + batch * b_batch + get_group_id(1) * p.k * 64;
    R acc[4][4], some[4][4];
    for (int r = 0; r < 4; r++) {
        for (int c = 0; c < 4; c++) acc[r][c] = some[r][c] = 0;
    }
    for (ulong first = 0; first < p.k; first += DEPTH) {
        for (uint i = item; i < DEPTH * 64; i += 256) {
            const int there = first + i / 64 < p.k;
            left[i] = there ? from_left[first * 64 + i] : (R)0;
            right[i] = there ? from_right[first * 64 + i] : (R)0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < DEPTH; k++) {
            R rows[4], columns[4];
            for (int r = 0; r < 4; r++) rows[r] = left[k * 64 + y * 4 + r];
            // Columns are 16 apart, so that neighbouring work items write neighbouring elements.
            for (int c = 0; c < 4; c++) columns[c] = right[k * 64 + c * 16 + x];
            for (int r = 0; r < 4; r++) {
                for (int c = 0; c < 4; c++) some[r][c] = fma(rows[r], columns[c], some[r][c]);
            }
        }
        if ((first + DEPTH) % SUMMED == 0 || first + DEPTH >= p.k) {
            for (int r = 0; r < 4; r++) {
                for (int c = 0; c < 4; c++) {
                    acc[r][c] += some[r][c];
                    some[r][c] = 0;
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int r = 0; r < 4; r++) {
        for (int c = 0; c < 4; c++) {
            const ulong i = get_group_id(0) * 64 + y * 4 + r, j = get_group_id(1) * 64 + c * 16 + x;
            if (i < p.m && j < p.n) FINISH(i, j, acc[r][c]);
        }
    }
}
#endif
