// Batched matrix products: out = activation(alpha * a @ b + beta * out + bias).
//
// T: dtype of a, b and bias; OUT: of the output; R: the type sums are kept in.

typedef struct {
    ulong batch, m, n, k;
    long a[3], b[3], out[3];
    long bias;
} Problem;

inline R activated(R x, uint flags) {
    if ((flags & 15) == 1) return (x > 0 || x != x) ? x : (R)0;
#if R_KIND != 2
    if ((flags & 15) == 2) return (R)0.5 * x * ((R)1 + erf(x * (R)0.7071067811865476));
    if ((flags & 15) == 3) return (R)0.5 * x * ((R)1 + tanh((R)0.7978845608028654 * (x + (R)0.044715 * x * x * x)));
#endif
    return x;
}

#ifdef PLAIN
// Any strides and dtypes: a work item per element of the output. flags: the activation, whether there is a bias, whether the output is read.
__kernel void matmul_plain(const Problem p, const __global T* a, const __global T* b, const __global T* bias, __global OUT* out, const R alpha, const R beta,
                           const uint codes, const uint flags) {
    const ulong j = get_global_id(0), i = get_global_id(1), batch = get_global_id(2);
    if (j >= p.n) return;
    const long row = (long)batch * p.a[0] + (long)i * p.a[1], column = (long)batch * p.b[0] + (long)j * p.b[2];
    R sum = 0;
    for (ulong k = 0; k < p.k; k++) sum += LOAD_T(a, row + (long)k * p.a[2]) * LOAD_T(b, column + (long)k * p.b[1]);
    const size_t place = (long)batch * p.out[0] + (long)i * p.out[1] + (long)j * p.out[2];
    R x = alpha * sum;
    if (flags & 32) x += beta * LOAD_OUT(out, place);
    if (flags & 16) x += LOAD_T(bias, (long)j * p.bias);
    STORE_OUT(out, place, activated(x, flags));
}
#endif

#ifdef PACK
// Panels of WIDTH neighbouring rows of a (or columns of b), element by element along k, as R and filled up with zeros: whatever a tile reads lies in a line.
__kernel void pack(const __global T* x, __global R* panels, const ulong count, const ulong depth, const long stride, const long depth_stride,
                   const long batch_stride) {
    const ulong k = get_global_id(0), panel = get_global_id(1), batch = get_global_id(2);
    if (k >= depth) return;
    const ulong first = panel * WIDTH;
    const long from = (long)batch * batch_stride + (long)k * depth_stride;
    __global R* to = panels + ((batch * get_num_groups(1) + panel) * depth + k) * WIDTH;
#if DENSE
    if (first + WIDTH <= count) {
        for (int v = 0; v < WIDTH; v++) to[v] = LOAD_T(x, from + (long)first + v);
        return;
    }
#endif
    for (int v = 0; v < WIDTH; v++) to[v] = first + v < count ? LOAD_T(x, from + (long)(first + v) * stride) : (R)0;
}
#endif

#ifdef TILES
// One element of the result: rows and columns beyond the output are dropped.
#define FINISH(i, j, sum)                                                                                 \
    do {                                                                                                  \
        const ulong i_ = (i), j_ = (j);                                                                   \
        if (i_ < p.m && j_ < p.n) {                                                                       \
            const size_t place_ = (long)batch * p.out[0] + (long)i_ * p.out[1] + (long)j_ * p.out[2];     \
            R x_ = alpha * (sum);                                                                         \
            if (flags & 32) x_ += beta * LOAD_OUT(out, place_);                                           \
            if (flags & 16) x_ += LOAD_T(bias, (long)j_ * p.bias);                                        \
            STORE_OUT(out, place_, activated(x_, flags));                                                 \
        }                                                                                                 \
    } while (0)

#if CPU_TILES
// A tile of ROWS rows and VECTORS vectors of LANES columns in the registers of one core.
#define COLUMNS (VECTORS * LANES)
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void matmul_tiles(const Problem p, const __global R* a, const __global R* b, const ulong a_batch, const ulong b_batch, const __global T* bias,
                  __global OUT* out, const R alpha, const R beta, const uint flags) {
    const ulong batch = get_group_id(2);
    const __global R* left = a + batch * a_batch + get_group_id(0) * p.k * ROWS;
    const __global R* right = b + batch * b_batch + get_group_id(1) * p.k * COLUMNS;
    // Only constant indices, so that the tile stays in registers.
    VECTOR acc[ROWS][VECTORS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int v = 0; v < VECTORS; v++) acc[r][v] = (VECTOR)(R)0;
    }
    for (ulong k = 0; k < p.k; k++) {
        VECTOR columns[VECTORS];
#pragma unroll
        for (int v = 0; v < VECTORS; v++) columns[v] = VLOAD(0, right + k * COLUMNS + v * LANES);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const VECTOR row = (VECTOR)left[k * ROWS + r];
#pragma unroll
            for (int v = 0; v < VECTORS; v++) acc[r][v] = fma(row, columns[v], acc[r][v]);
        }
    }
    R tile[ROWS * COLUMNS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int v = 0; v < VECTORS; v++) VSTORE(acc[r][v], 0, tile + r * COLUMNS + v * LANES);
    }
#pragma unroll 1
    for (int r = 0; r < ROWS; r++) {
#pragma unroll 1
        for (int c = 0; c < COLUMNS; c++) FINISH(get_group_id(0) * ROWS + r, get_group_id(1) * COLUMNS + c, tile[r * COLUMNS + c]);
    }
}
#else
// A tile of 64 by 64 for 16 by 16 work items with 4 by 4 elements each; DEPTH elements along k at a time in local memory.
#define DEPTH 16
__kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void matmul_tiles(const Problem p, const __global R* a, const __global R* b, const ulong a_batch, const ulong b_batch, const __global T* bias,
                  __global OUT* out, const R alpha, const R beta, const uint flags) {
    __local R left[DEPTH * 64], right[DEPTH * 64];
    const uint x = get_local_id(0), y = get_local_id(1), item = y * 16 + x;
    const ulong batch = get_group_id(2);
    const __global R* from_left = a + batch * a_batch + get_group_id(0) * p.k * 64;
    const __global R* from_right = b + batch * b_batch + get_group_id(1) * p.k * 64;
    R acc[4][4];
    for (int r = 0; r < 4; r++) {
        for (int c = 0; c < 4; c++) acc[r][c] = 0;
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
            // Columns 16 apart, so that neighbouring work items write neighbours.
            for (int c = 0; c < 4; c++) columns[c] = right[k * 64 + c * 16 + x];
            for (int r = 0; r < 4; r++) {
                for (int c = 0; c < 4; c++) acc[r][c] = fma(rows[r], columns[c], acc[r][c]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int r = 0; r < 4; r++) {
        for (int c = 0; c < 4; c++) FINISH(get_group_id(0) * 64 + y * 4 + r, get_group_id(1) * 64 + c * 16 + x, acc[r][c]);
    }
}
#endif
#endif
