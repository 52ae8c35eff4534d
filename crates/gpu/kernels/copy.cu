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
// x is at the first element of the output; strides of reversed dimensions are negative.
extern "C" __global__ void flip(Nest<2> nest, const T* x, T* out, u64 count) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    idx at[2];
    nest.offsets((idx)i, at);
    out[at[0]] = x[(i64)at[1]];
}
#endif

#ifdef TRANSPOSE
// out[b, r, c] = x[b, c, r]. Rows and columns are the two inner loops: the input is dense along r, the output along c.
// Tiles of 32 by 32 go through shared memory, so that reads and writes are coalesced.
extern "C" __global__ void transpose(Nest<2> batch, const T* x, T* out, u32 rows, u32 columns, u64 x_step, u64 out_step) {
    __shared__ T tile[32][33];
    idx at[2];
    batch.offsets(blockIdx.y / ((rows + 31) / 32), at);
    u32 row = blockIdx.y % ((rows + 31) / 32) * 32, column = blockIdx.x * 32;
    for (u32 j = threadIdx.y; j < 32; j += 8) {
        u32 c = column + j, r = row + threadIdx.x;
        if (c < columns && r < rows) tile[j][threadIdx.x] = x[at[0] + c * x_step + r];
    }
    __syncthreads();
    for (u32 j = threadIdx.y; j < 32; j += 8) {
        u32 r = row + j, c = column + threadIdx.x;
        if (c < columns && r < rows) out[at[1] + r * out_step + c] = tile[threadIdx.x][j];
    }
}
#endif
