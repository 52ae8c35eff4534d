// Indexing by tensors. Kernels check indices as they read them. They record an index out of range (see Fault) and skip
// its element.

#define MAX_INDICES 8

#ifdef RESOLVE
struct Dimensions { const i64* indices[MAX_INDICES]; u64 sizes[MAX_INDICES]; u64 strides[MAX_INDICES]; };

// offsets[p]: start of the block that the index tensors select at position p, or -1.
extern "C" __global__ void resolve(Nest<MAX_INDICES> nest, Dimensions d, u32 dims, i64* offsets, u64 count, Fault* fault) {
    u64 p = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (p >= count) return;
    idx at[MAX_INDICES];
    nest.offsets((idx)p, at);
    i64 offset = 0;
#pragma unroll
    for (int i = 0; i < MAX_INDICES; i++) {
        if (i < dims && offset >= 0) {
            i64 index = wrap_index(d.indices[i][at[i]], (i64)d.sizes[i], fault);
            offset = index < 0 ? -1 : offset + index * (i64)d.strides[i];
        }
    }
    offsets[p] = offset;
}
#endif

#ifdef RESOLVE_LINE
// The same for a scatter: offsets into the output of each element of the index tensor.
extern "C" __global__ void resolve_line(Nest<2> nest, const i64* index, u64 size, u64 stride, i64* offsets, u64 count, Fault* fault) {
    u64 p = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (p >= count) return;
    idx at[2];
    nest.offsets((idx)p, at);
    i64 i = wrap_index(index[at[0]], (i64)size, fault);
    offsets[p] = i < 0 ? -1 : (i64)at[1] + i * (i64)stride;
}
#endif

#ifdef MOVE
// PUT: indexed[offsets[p] + r] = dense[p, r]; otherwise the reverse. E is an unsigned type of the element's size, or 16
// bytes.
extern "C" __global__ void move(Nest<1> outer, Nest<2> inner, const i64* offsets, E* indexed, E* dense, u64 count, u64 block) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    u64 p = i / block, r = i % block;
    i64 offset = offsets[p];
    idx at[1], in[2];
    outer.offsets((idx)p, at);
    inner.offsets((idx)r, in);
    E* there = indexed + offset + in[0];
    E* here = dense + at[0] + in[1];
#if PUT
    if (offset >= 0) *there = *here;
#else
    E nothing = {};
    *here = offset >= 0 ? *there : nothing;
#endif
}
#endif

enum { SET, ADD, MUL, LARGER, SMALLER };
#ifdef OP_CODE
__device__ inline W folded(W old, W x) {
    if (OP_CODE == ADD) return old + x;
    if (OP_CODE == MUL) return old * x;
    if (OP_CODE == LARGER) return old >= x || old != old ? old : x;
    if (OP_CODE == SMALLER) return old <= x || old != old ? old : x;
    return x;
}
#endif

#ifdef SEGMENTS
struct Item { u64 image; u64 position; };

// out[offset + r] op= values[p, r] for all p of each offset, in the order of p: items are sorted by offset, then p.
extern "C" __global__ void segments(Nest<1> outer, Nest<2> inner, const Item* items, const T* values, u64 number, T* out, u64 positions, u64 block) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= positions * block) return;
    u64 s = i / block, r = i % block;
    u64 image = items[s].image;
    i64 offset = (i64)(image ^ 0x8000000000000000ULL);
    if (offset < 0 || (s > 0 && items[s - 1].image == image)) return;
    idx at[1], in[2];
    inner.offsets((idx)r, in);
    T* place = out + offset + in[0];
    W acc = convert<W>(*place);
    for (; s < positions && items[s].image == image; s++) {
        outer.offsets((idx)items[s].position, at);
        acc = folded(acc, values ? convert<W>(values[at[0] + in[1]]) : Number<W>::of(number));
    }
    *place = convert<T>(acc);
}
#endif

#ifdef GATHER
extern "C" __global__ void gather(Nest<3> nest, const E* x, const i64* index, E* out, u64 size, u64 stride, u64 count, Fault* fault) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    idx at[3];
    nest.offsets((idx)i, at);
    i64 k = wrap_index(index[at[1]], (i64)size, fault);
    E nothing = {};
    out[at[0]] = k < 0 ? nothing : x[at[2] + (u64)k * stride];
}
#endif

#ifdef SCATTER
// A thread processes a line in order: no two lines write to the same place.
extern "C" __global__ void scatter(Nest<3> lines, const i64* index, const T* src, u64 number, T* out, u64 count, u64 length, u64 size, u64 stride, u64 index_step, u64 src_step, Fault* fault) {
    u64 line = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (line >= count) return;
    idx at[3];
    lines.offsets((idx)line, at);
    for (u64 i = 0; i < length; i++) {
        i64 k = wrap_index(index[at[1] + i * index_step], (i64)size, fault);
        if (k < 0) continue;
        T* place = out + at[0] + (u64)k * stride;
        W x = src ? convert<W>(src[at[2] + i * src_step]) : Number<W>::of(number);
        *place = convert<T>(folded(convert<W>(*place), x));
    }
}
#endif

#ifdef NONZERO
#define PER_BLOCK 1024
// Counts the nonzero elements of each block.
extern "C" __global__ void __launch_bounds__(256) nonzero_count(Nest<1> nest, const T* x, u64 count, i64* counts) {
    __shared__ i64 shared[8];
    i64 mine = 0;
    for (u32 k = 0; k < 4; k++) {
        u64 i = blockIdx.x * (u64)PER_BLOCK + threadIdx.x * 4 + k;
        if (i < count) {
            idx at[1];
            nest.offsets((idx)i, at);
            mine += convert<bool8>(x[at[0]]).bits;
        }
    }
    i64 all = group_reduce<Sum, 256>(mine, shared);
    if (threadIdx.x == 0) counts[blockIdx.x] = all;
}

struct Shape { u32 rank; u64 sizes[MAX_RANK]; };

// Writes the coordinates of nonzero elements; sums[b] is the count of the blocks up to b.
extern "C" __global__ void __launch_bounds__(256) nonzero(Nest<1> nest, Shape shape, const T* x, u64 count, const i64* sums, i64* out) {
    __shared__ u32 before[256];
    u32 mine = 0, marks = 0;
    u64 first = blockIdx.x * (u64)PER_BLOCK + threadIdx.x * 4;
    for (u32 k = 0; k < 4; k++) {
        if (first + k < count) {
            idx at[1];
            nest.offsets((idx)(first + k), at);
            u32 set = convert<bool8>(x[at[0]]).bits;
            marks |= set << k;
            mine += set;
        }
    }
    before[threadIdx.x] = mine;
    __syncthreads();
    for (u32 reach = 1; reach < 256; reach *= 2) {
        u32 left = threadIdx.x >= reach ? before[threadIdx.x - reach] : 0;
        __syncthreads();
        before[threadIdx.x] += left;
        __syncthreads();
    }
    u64 row = (u64)(blockIdx.x > 0 ? sums[blockIdx.x - 1] : 0) + before[threadIdx.x] - mine;
    for (u32 k = 0; k < 4; k++) {
        if (marks >> k & 1) {
            u64 rest = first + k;
            for (int d = (int)shape.rank - 1; d >= 0; d--) {
                out[row * shape.rank + d] = (i64)(rest % shape.sizes[d]);
                rest /= shape.sizes[d];
            }
            row++;
        }
    }
}
#endif
