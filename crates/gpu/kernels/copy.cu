// Sequences, reversed copies, and copies between layouts whose innermost dimensions differ.

#ifdef ARANGE
// NUM: double or i64.
extern "C" __global__ void arange(Nest<1> nest, NUM start, NUM step, OUT* out, u64 count) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    idx at[1];
    nest.offsets((idx)i, at);
    out[at[0]] = convert<OUT>((NUM)(start + (NUM)i * step));
}
#endif

#ifdef FLIP
// Elements of a thread.
#define EACH 4
// x is at the first element of the output; strides of reversed dimensions are negative.
extern "C" __global__ void flip(Nest<2> nest, const T* x, T* out, u64 count) {
    u64 first = blockIdx.x * (u64)blockDim.x * EACH + threadIdx.x;
    T some[EACH];
    idx place[EACH];
    // All loads before the first store: the compiler cannot reorder them.
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        u64 i = first + k * (u64)blockDim.x;
        if (i >= count) break;
        idx at[2];
        nest.offsets((idx)i, at);
        some[k] = x[(i64)at[1]];
        place[k] = at[0];
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) if (first + k * (u64)blockDim.x < count) out[place[k]] = some[k];
}
#endif

#ifdef TRANSPOSE
#define TILE (32 * VECTOR)
// out[b, r, c] = x[b, c, r]. Rows and columns are the two inner loops: the input is dense along r, the output along c.
// Square tiles go through shared memory, so that reads and writes are coalesced: VECTOR elements of a thread at once.
extern "C" __global__ void transpose(Nest<2> batch, const T* x, T* out, u32 rows, u32 columns, u64 x_step, u64 out_step) {
    typedef Vec<T, VECTOR> V;
    __shared__ V tile[TILE][33];
    idx at[2];
    u32 down = (rows + TILE - 1) / TILE, own = threadIdx.x * VECTOR;
    batch.offsets(blockIdx.y / down, at);
    u32 row = blockIdx.y % down * TILE, column = blockIdx.x * TILE;
#pragma unroll
    for (u32 j = threadIdx.y; j < TILE; j += 8) {
        u32 c = column + j, r = row + own;
        if (c < columns && r < rows) tile[j][threadIdx.x] = *(const V*)(x + at[0] + c * x_step + r);
    }
    __syncthreads();
#pragma unroll
    for (u32 j = threadIdx.y; j < TILE; j += 8) {
        u32 r = row + j, c = column + own;
        if (c < columns && r < rows) {
            V v;
#pragma unroll
            for (int l = 0; l < VECTOR; l++) v.v[l] = ((const T*)tile[own + l])[j];
            *(V*)(out + at[1] + r * out_step + c) = v;
        }
    }
}
#endif
