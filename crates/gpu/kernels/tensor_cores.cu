// Tiles of a head's rows in shared memory and their products on tensor cores, for kernels of WARPS warps that take 16
// rows each and walk the other side in steps of STEP. T is a half type, D the head size.
//
// WARPGROUP: four warps multiply 64 rows together, D is 64, and the text of warpgroup.cu precedes this one. Otherwise a
// warp multiplies 16 rows (mma), and products are synchronous.

#if WARPGROUP
#define GROUP 4  // warps that multiply together
#define ROW D
#else
#define GROUP 1
#define ROW (D + 8)  // padded by 16 bytes, so that eight rows are in different banks
#endif
#define THREADS (WARPS * 32)
#define BLOCK_ROWS (WARPS * 16)

#ifndef EMULATED
__device__ inline void copy_async(T* to, const T* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0));
}
// Eight bytes.
template <class A> __device__ inline void copy_row(A* to, const A* from, bool there) {
    static_assert(sizeof(A) == 8, "eight bytes");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 8 : 0));
}
__device__ inline void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ inline void wait_for_all_but() { asm volatile("cp.async.wait_group %0;" ::"n"(N)); }

// Four matrices of 8 by 8, by the addresses of their rows; lanes have two neighbours of a row, or of a column.
__device__ inline void read_matrices(Fragment& f, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(at));
}
__device__ inline void read_transposed(Fragment& f, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(at));
}

__device__ inline void multiply(float (&c)[4], const Fragment& a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." MMA_DTYPE "." MMA_DTYPE ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// The address of an element in a tile (a multiple of 8 columns). For wgmma the 16-byte pieces of a row's 128 bytes are
// swizzled by the row's number, so that neighbouring rows are in different banks.
__device__ inline T* place(const T* tile, int row, int column) {
#if WARPGROUP
    return (T*)tile + row * ROW + ((column / 8 ^ row) % 8) * 8;
#else
    return (T*)tile + row * ROW + column;
#endif
}

// Copy of a head's rows to shared memory: this thread's position in the next rows, and the number of rows left.
struct Source {
    const T* from;
    u64 stride;
    int left;
};

// A thread keeps its column and advances by rows.
#define CHUNKS (D <= 32 ? 4 : D <= 64 ? 8 : D <= 128 ? 16 : 32)
#define DOWN (THREADS / CHUNKS)

__device__ inline Source source(const T* head, u64 stride, int first, int count, int d) {
    int row = first + (int)threadIdx.x / CHUNKS, c = threadIdx.x % CHUNKS * 8;
    return {head + (u64)row * stride + c, stride, c < d ? count - row : 0};
}

// Copies the next ROWS rows. Missing rows are zero; their addresses are not read.
template <int ROWS> __device__ inline void load_rows(T* tile, Source& s) {
    static_assert(ROWS % DOWN == 0, "whole turns");
    int c = threadIdx.x % CHUNKS * 8;
    T* to = place(tile, threadIdx.x / CHUNKS, c);
    if (D == CHUNKS * 8 || c < D) {
#pragma unroll
        for (int n = 0; n < ROWS / DOWN; n++) copy_async(to + n * DOWN * ROW, s.from + n * (DOWN * s.stride), n * DOWN < s.left);
    }
    s.from += ROWS * s.stride;
    s.left -= ROWS;
}

// A 16 by 16 piece as a first operand: rows of the tile are its rows.
__device__ inline void load_a(Fragment& f, const T* tile, int row, int column) {
    int lane = threadIdx.x % 32;
    read_matrices(f, shared_address(place(tile, row + lane % 16, column + lane / 16 * 8)));
}

#if WARPGROUP
// c = the group's rows of a tile times STEP rows of another. The rows stay in shared memory: if they are kept in
// registers from step to step, ptxas 13.0 reuses their registers.
__device__ inline void times_transposed(float (&c)[STEP / 8][4], const T* rows, const T* tile) {
    u32 a = lines(rows) + (WARPS > 4 ? threadIdx.x / 128 * (4 * NEXT_LINES) : 0), b = lines(tile);
    hold(c);
    begin_products();
    multiply<0>(c, a, b);
#pragma unroll
    for (int k = 1; k < D / 16; k++) multiply<1>(c, a + k * NEXT_COLUMNS, b + k * NEXT_COLUMNS);
    end_products();
}

// acc += a step's operand times STEP rows of a tile.
__device__ inline void accumulate(float (&acc)[D / 8][4], Fragment (&a)[STEP / 16], const T* tile) {
    u32 b = lines(tile);
    hold(acc);
    hold(a);
    begin_products();
#pragma unroll
    for (int k = 0; k < STEP / 16; k++) multiply(acc, a[k], b + k * NEXT_LINES);
    end_products();
}
#else
__device__ inline T* tiles_in(double* memory) { return (T*)memory; }
template <class A> __device__ inline void hold(A&) {}
__device__ inline void end_products() {}
template <int LEFT, class A> __device__ inline void wait_for_products(A&) {}

// Two neighbouring second operands of 16 by 8 whose columns are rows of the tile (a product with its transpose).
__device__ inline void load_b(Fragment& f, const T* tile, int row, int column) {
    int lane = threadIdx.x % 32;
    read_matrices(f, shared_address(tile + (row + lane % 8 + lane / 16 * 8) * ROW + column + lane / 8 % 2 * 8));
}

// The same whose rows are rows of the tile.
__device__ inline void load_b_rows(Fragment& f, const T* tile, int row, int column) {
    int lane = threadIdx.x % 32;
    read_transposed(f, shared_address(tile + (row + lane % 16) * ROW + column + lane / 16 * 8));
}

// c = 16 rows (already fragments, one per 16 columns) times STEP rows of a tile.
__device__ inline void times_transposed(float (&c)[STEP / 8][4], const Fragment (&a)[D / 16], const T* tile) {
    clear(c);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
#pragma unroll
        for (int n = 0; n < STEP / 16; n++) {
            Fragment b;
            load_b(b, tile, n * 16, k * 16);
            multiply(c[2 * n], a[k], b[0], b[1]);
            multiply(c[2 * n + 1], a[k], b[2], b[3]);
        }
    }
}

// The same with the warp's rows in shared memory, for heads whose fragments registers do not hold.
__device__ inline void times_transposed(float (&c)[STEP / 8][4], const T* rows, const T* tile) {
    clear(c);
#pragma unroll 4
    for (int k = 0; k < D / 16; k++) {
        Fragment a;
        load_a(a, rows, threadIdx.x / 32 * 16, k * 16);
#pragma unroll
        for (int n = 0; n < STEP / 16; n++) {
            Fragment b;
            load_b(b, tile, n * 16, k * 16);
            multiply(c[2 * n], a, b[0], b[1]);
            multiply(c[2 * n + 1], a, b[2], b[3]);
        }
    }
}

// acc += a step's operand times STEP rows of a tile.
__device__ inline void accumulate(float (&acc)[D / 8][4], const Fragment (&a)[STEP / 16], const T* tile) {
#pragma unroll
    for (int k = 0; k < STEP / 16; k++) {
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            Fragment b;
            load_b_rows(b, tile, k * 16, n * 16);
            multiply(acc[2 * n], a[k], b[0], b[1]);
            multiply(acc[2 * n + 1], a[k], b[2], b[3]);
        }
    }
}
#endif

// Waits until all but the latest N sets of this thread's copies have arrived, then synchronises the block, so that all
// threads see all data.
template <int N> __device__ inline void wait_for_copies() {
    wait_for_all_but<N>();
#if WARPGROUP
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncthreads();
}
