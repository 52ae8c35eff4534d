// Attention on tensor cores, forward and backward, for half types.
//
// D: head size rounded up to 32, 64, 96 or 128. A block takes BLOCK_ROWS queries (forward, gradient by queries) or keys (gradient by keys and
// values) of one head, 16 * TILES per warp, and walks the other side in steps of STEP. Scores never leave registers: the accumulators of one product have
// the layout that the next one's first operand needs. Nothing is added by atomics, so results do not depend on timing.
//
// WARPGROUP: four warps multiply 64 rows together (wgmma, compute capability 9.0), the second operand staying in shared memory; it runs beside
// other instructions until `wait_for_products`. Elsewhere a warp multiplies 16 rows (mma), and there is nothing to wait for.

#if IS_BF16
#define MMA_DTYPE "bf16"
#else
#define MMA_DTYPE "f16"
#endif
#if WARPGROUP
#define GROUP 4  // warps that multiply together
#define ROW D
#else
#define GROUP 1
#define ROW (D + 8)  // 16 bytes more than a row needs: eight rows then lie in different banks
#endif
#define THREADS (WARPS * 32)
#define BLOCK_ROWS (WARPS * 16 * TILES)
#define STEP 64
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

__device__ inline u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ inline void copy_async(T* to, const T* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0));
}
__device__ inline void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ inline void wait_for_all_but() { asm volatile("cp.async.wait_group %0;" ::"n"(N)); }

// Where a tile of ROWS rows has an element (a multiple of 8 columns). For wgmma rows are cut into panels of 64 elements, 128 bytes, and the
// row's number swaps the 16-byte pieces of such a line about: neighbouring rows then lie in different banks.
template <int ROWS> __device__ inline T* place(const T* tile, int row, int column) {
#if WARPGROUP
    return (T*)tile + column / 64 * (ROWS * 64) + row * 64 + ((column / 8 ^ row) % 8) * 8;
#else
    return (T*)tile + row * ROW + column;
#endif
}

// Rows `first..` of a head to shared memory; what is not there is zero (nothing is read at its address).
template <int ROWS> __device__ inline void load_rows(T* tile, const T* head, u64 stride, int first, int count, int d) {
    const int chunks = D / 8;
    if (THREADS % chunks == 0) {
        // A thread keeps its column and steps down.
        const int step = THREADS / chunks;
        int r = threadIdx.x / chunks, c = threadIdx.x % chunks * 8, left = c < d ? count - first - r : 0;
        const T* from = head + (u64)(first + r) * stride + c;
        T* to = place<ROWS>(tile, r, c);
        const int down = step * (WARPGROUP ? 64 : ROW);
#pragma unroll
        for (int n = 0; n < ROWS / step; n++) copy_async(to + n * down, from + n * (step * stride), n * step < left);
    } else {
        for (int i = threadIdx.x; i < ROWS * chunks; i += THREADS) {
            int r = i / chunks, c = i % chunks * 8;
            copy_async(place<ROWS>(tile, r, c), head + (u64)(first + r) * stride + c, first + r < count && c < d);
        }
    }
}

typedef u32 Fragment[4];

// A 16 by 16 piece as a first operand: rows of the tile are its rows.
__device__ inline void load_a(Fragment& f, const T* tile, int row, int column) {
    int lane = threadIdx.x % 32;
    u32 at = shared_address(place<BLOCK_ROWS>(tile, row + lane % 16, column + lane / 16 * 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(at));
}

__device__ inline u32 packed(float low, float high) {
    u32 y;
    asm("cvt.rn." MMA_DTYPE "x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <int M, int N> __device__ inline void clear(float (&c)[M][N][4]) {
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < N; n++) c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0;
    }
}

// Two neighbouring accumulators of 16 by 8 as a first operand.
__device__ inline void as_operand(Fragment& a, const float (&left)[4], const float (&right)[4]) {
    a[0] = packed(left[0], left[1]);
    a[1] = packed(left[2], left[3]);
    a[2] = packed(right[0], right[1]);
    a[3] = packed(right[2], right[3]);
}

#if WARPGROUP
// How wgmma finds lines of a panel: every eighth is 1024 bytes further, pieces are swapped over 128 bytes.
__device__ inline u64 lines(const T* tile) { return (u64)((shared_address(tile) & 0x3ffff) >> 4) | 64ull << 16 | 64ull << 32 | 1ull << 62; }
// So much further, as `lines` counts: 16 columns along a panel, 16 lines down, to the next panel of a tile.
#define NEXT_COLUMNS 2
#define NEXT_LINES 128
#define NEXT_PANEL(rows) ((rows) * 8)

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Keeps what uses accumulators on its side of the products.
template <int M, int N> __device__ inline void hold(float (&c)[M][N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : "+f"(c[0][n][0]), "+f"(c[0][n][1]), "+f"(c[0][n][2]), "+f"(c[0][n][3])::"memory");
}

// Until all but the latest LEFT sets of products are done.
template <int LEFT, int M, int N> __device__ inline void wait_for_products(float (&c)[M][N][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
    hold(c);
}

// 64 by 64 accumulators from fragment F of c on: += (or = unless `add`) 16 columns of rows in registers times 16 by 64 in shared memory, whose lines are
// its columns, or its rows if LINES_ARE_ROWS.
template <int F, int LINES_ARE_ROWS, int N> __device__ inline void multiply(float (&c)[N][4], const Fragment& a, u64 b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." MMA_DTYPE "." MMA_DTYPE
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
        : "+f"(c[F + 0][0]), "+f"(c[F + 0][1]), "+f"(c[F + 0][2]), "+f"(c[F + 0][3]), "+f"(c[F + 1][0]), "+f"(c[F + 1][1]), "+f"(c[F + 1][2]), "+f"(c[F + 1][3]), "+f"(c[F + 2][0]), "+f"(c[F + 2][1]), "+f"(c[F + 2][2]), "+f"(c[F + 2][3]), "+f"(c[F + 3][0]), "+f"(c[F + 3][1]), "+f"(c[F + 3][2]), "+f"(c[F + 3][3]), "+f"(c[F + 4][0]), "+f"(c[F + 4][1]), "+f"(c[F + 4][2]), "+f"(c[F + 4][3]), "+f"(c[F + 5][0]), "+f"(c[F + 5][1]), "+f"(c[F + 5][2]), "+f"(c[F + 5][3]), "+f"(c[F + 6][0]), "+f"(c[F + 6][1]), "+f"(c[F + 6][2]), "+f"(c[F + 6][3]), "+f"(c[F + 7][0]), "+f"(c[F + 7][1]), "+f"(c[F + 7][2]), "+f"(c[F + 7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(LINES_ARE_ROWS));
}

// The same with the rows in shared memory, too.
template <int N> __device__ inline void multiply(float (&c)[N][4], u64 a, u64 b, int add) {
    const int F = 0;
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." MMA_DTYPE "." MMA_DTYPE " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;\n}"
        : "+f"(c[F + 0][0]), "+f"(c[F + 0][1]), "+f"(c[F + 0][2]), "+f"(c[F + 0][3]), "+f"(c[F + 1][0]), "+f"(c[F + 1][1]), "+f"(c[F + 1][2]), "+f"(c[F + 1][3]), "+f"(c[F + 2][0]), "+f"(c[F + 2][1]), "+f"(c[F + 2][2]), "+f"(c[F + 2][3]), "+f"(c[F + 3][0]), "+f"(c[F + 3][1]), "+f"(c[F + 3][2]), "+f"(c[F + 3][3]), "+f"(c[F + 4][0]), "+f"(c[F + 4][1]), "+f"(c[F + 4][2]), "+f"(c[F + 4][3]), "+f"(c[F + 5][0]), "+f"(c[F + 5][1]), "+f"(c[F + 5][2]), "+f"(c[F + 5][3]), "+f"(c[F + 6][0]), "+f"(c[F + 6][1]), "+f"(c[F + 6][2]), "+f"(c[F + 6][3]), "+f"(c[F + 7][0]), "+f"(c[F + 7][1]), "+f"(c[F + 7][2]), "+f"(c[F + 7][3])
        : "l"(a), "l"(b), "r"(add));
}

// c = rows (already fragments, one per 16 columns) times STEP rows of a tile.
__device__ inline void times_transposed(float (&c)[1][STEP / 8][4], const Fragment (&a)[1][D / 16], const T* tile) {
    u64 b = lines(tile);
    hold(c);
    begin_products();
#pragma unroll
    for (int k = 0; k < D / 16; k++) multiply<0, 0>(c[0], a[0][k], b + k / 4 * NEXT_PANEL(STEP) + k % 4 * NEXT_COLUMNS, k > 0);
    end_products();
}

// The same for the group's rows of a tile.
__device__ inline void times_transposed(float (&c)[1][STEP / 8][4], const T* rows, const T* tile) {
    u64 a = lines(rows) + threadIdx.x / 128 * (4 * NEXT_LINES), b = lines(tile);
    hold(c);
    begin_products();
#pragma unroll
    for (int k = 0; k < D / 16; k++)
        multiply(c[0], a + k / 4 * NEXT_PANEL(BLOCK_ROWS) + k % 4 * NEXT_COLUMNS, b + k / 4 * NEXT_PANEL(STEP) + k % 4 * NEXT_COLUMNS, k > 0);
    end_products();
}

// acc += p (rows by STEP, accumulators) times STEP rows of a tile.
__device__ inline void accumulate(float (&acc)[1][D / 8][4], const float (&p)[1][STEP / 8][4], const T* tile) {
    Fragment a[STEP / 16];
#pragma unroll
    for (int k = 0; k < STEP / 16; k++) as_operand(a[k], p[0][2 * k], p[0][2 * k + 1]);
    u64 b = lines(tile);
    hold(acc);
    begin_products();
#pragma unroll
    for (int k = 0; k < STEP / 16; k++) {
        multiply<0, 1>(acc[0], a[k], b + k * NEXT_LINES, 1);
#if D == 128
        multiply<8, 1>(acc[0], a[k], b + NEXT_PANEL(STEP) + k * NEXT_LINES, 1);
#endif
    }
    end_products();
}
#else
template <int LEFT, int M, int N> __device__ inline void wait_for_products(float (&)[M][N][4]) {}

// Two neighbouring second operands of 16 by 8 whose columns are rows of the tile (a product with its transpose).
__device__ inline void load_b(Fragment& f, const T* tile, int row, int column) {
    int lane = threadIdx.x % 32;
    u32 at = shared_address(tile + (row + lane % 8 + lane / 16 * 8) * ROW + column + lane / 8 % 2 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(at));
}

// The same whose rows are rows of the tile.
__device__ inline void load_b_rows(Fragment& f, const T* tile, int row, int column) {
    int lane = threadIdx.x % 32;
    u32 at = shared_address(tile + (row + lane % 16) * ROW + column + lane / 16 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(at));
}

__device__ inline void multiply(float (&c)[4], const Fragment& a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." MMA_DTYPE "." MMA_DTYPE ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// c[m][n] = 16 rows (already fragments, one per 16 columns) times STEP rows of a tile, for M times 16 rows.
template <int M> __device__ inline void times_transposed(float (&c)[M][STEP / 8][4], const Fragment (&a)[M][D / 16], const T* tile) {
    clear(c);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
#pragma unroll
        for (int n = 0; n < STEP / 16; n++) {
            Fragment b;
            load_b(b, tile, n * 16, k * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply(c[m][2 * n], a[m][k], b[0], b[1]);
                multiply(c[m][2 * n + 1], a[m][k], b[2], b[3]);
            }
        }
    }
}

// acc += p (M times 16 by STEP, accumulators) times STEP rows of a tile.
template <int M> __device__ inline void accumulate(float (&acc)[M][D / 8][4], const float (&p)[M][STEP / 8][4], const T* tile) {
#pragma unroll
    for (int k = 0; k < STEP / 16; k++) {
        Fragment a[M];
#pragma unroll
        for (int m = 0; m < M; m++) as_operand(a[m], p[m][2 * k], p[m][2 * k + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            Fragment b;
            load_b_rows(b, tile, k * 16, n * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply(acc[m][2 * n], a[m], b[0], b[1]);
                multiply(acc[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}
#endif

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

// Where a block's tiles start: wgmma wants them at multiples of 1024 bytes.
__device__ inline T* tiles_in(double* memory) {
#if WARPGROUP
    return (T*)((char*)memory + (1024 - shared_address(memory) % 1024) % 1024);
#else
    return (T*)memory;
#endif
}

// Until this thread's copies but the latest N sets are there, and all threads' are for all to see.
template <int N> __device__ inline void wait_for_copies() {
    wait_for_all_but<N>();
#if WARPGROUP
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncthreads();
}

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
    wait_for_copies<0>();
    Fragment mine[TILES][D / 16];
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
#pragma unroll
        for (int m = 0; m < TILES; m++) load_a(mine[m][k], q, (warp * TILES + m) * 16, k * 16);
    }
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
    T* steps_at = q + BLOCK_ROWS * ROW;
    float* deltas = (float*)(steps_at + 4 * STEP * ROW);
    u64 h = blockIdx.y % s.heads, b = blockIdx.y / s.heads, kh = h / (s.heads / s.kv_heads);
    int first = (int)(gridDim.x - 1 - blockIdx.x) * BLOCK_ROWS;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const T* keys = s.k + b * s.k_strides[0] + kh * s.k_strides[1];
    const T* values = s.v + b * s.v_strides[0] + kh * s.v_strides[1];
    const T* grads = saved.dout + b * saved.dout_strides[0] + h * saved.dout_strides[1];
    int end = CAUSAL && first + BLOCK_ROWS < (int)s.s ? first + BLOCK_ROWS : (int)s.s;
    int steps = (end + STEP - 1) / STEP;
    Fragment mine[1][D / 16], incoming[1][D / 16];
    // Queries and incoming gradients pass through the same memory on their way to registers.
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
    wait_for_copies<0>();
#pragma unroll
    for (int k = 0; k < D / 16; k++) load_a(mine[0][k], q, warp * 16, k * 16);
    __syncthreads();
    load_rows<BLOCK_ROWS>(q, grads, saved.dout_strides[2], first, s.l, (int)s.d);
    load_rows<STEP>(STAGE(0, 0), keys, s.k_strides[2], 0, s.s, (int)s.d);
    load_rows<STEP>(STAGE(0, 1), values, s.v_strides[2], 0, s.s, (int)s.d);
    commit();
    wait_for_copies<0>();
#pragma unroll
    for (int k = 0; k < D / 16; k++) load_a(incoming[0][k], q, warp * 16, k * 16);
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
    // Keys and values stay in shared memory: registers are for the accumulators.
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
            if (!DROPOUT) accumulate(acc_v, p, STAGE(n, 1));
            wait_for_products<DROPOUT ? 0 : 1>(ds);
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
            if (DROPOUT) accumulate(acc_v, p, STAGE(n, 1));
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
