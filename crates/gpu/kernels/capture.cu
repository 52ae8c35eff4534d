// Prologue and epilogue of a recorded step: the prologue copies numbers and inputs in, the epilogue copies outputs out.

#define PIECE 32768

// Copies bytes, 16 at a time if both addresses are aligned.
__device__ inline void copy_piece(const u8* from, u8* to, u64 start, u64 end) {
    if ((((u64)from | (u64)to | end) & 15) == 0) {
        for (u64 i = start + threadIdx.x * 16; i < end; i += 256 * 16) *(Vec16*)(to + i) = *(const Vec16*)(from + i);
    } else {
        for (u64 i = start + threadIdx.x; i < end; i += 256) to[i] = from[i];
    }
}

#ifdef BEGIN
struct Copy { const u8* from; u8* to; u64 bytes; u64 first; };
struct Begin { u64* block; u32 values; u32 copies; u64 value[VALUES]; Copy copy[COPIES]; };

extern "C" __global__ void __launch_bounds__(256) step_begin(Begin b) {
    if (blockIdx.x == 0 && threadIdx.x < b.values) b.block[threadIdx.x] = b.value[threadIdx.x];
    for (u32 k = 0; k < b.copies; k++) {
        const Copy c = b.copy[k];
        u64 piece = blockIdx.x - c.first, start = piece * PIECE;
        if (blockIdx.x < c.first || start >= c.bytes) continue;
        copy_piece(c.from, c.to, start, start + PIECE < c.bytes ? start + PIECE : c.bytes);
    }
}
#endif

#ifdef END
// `slot`: the index, among the numbers, of the output's destination address.
struct Output { const u8* from; u64 bytes; u64 first; u64 slot; };
struct End { const u64* block; u64 outputs; Output output[OUTPUTS]; };

extern "C" __global__ void __launch_bounds__(256) step_end(End e) {
    for (u64 k = 0; k < e.outputs; k++) {
        const Output o = e.output[k];
        u64 piece = blockIdx.x - o.first, start = piece * PIECE;
        if (blockIdx.x < o.first || start >= o.bytes) continue;
        copy_piece(o.from, (u8*)e.block[o.slot], start, start + PIECE < o.bytes ? start + PIECE : o.bytes);
    }
}
#endif
