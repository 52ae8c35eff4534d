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
// bytes. DIRECT: `offsets` are the indices of one dimension of a size and a stride.
extern "C" __global__ void move(Nest<1> outer, Nest<2> inner, const i64* offsets, E* indexed, E* dense, u64 count, u64 block, u64 size, u64 stride, Fault* fault) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    u64 p = quotient(i, block), r = i - p * block;
    i64 offset = offsets[p];
    if (DIRECT) {
        i64 index = wrap_index(offset, (i64)size, fault);
        offset = index < 0 ? -1 : index * (i64)stride;
    }
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
// Items of sort.cu: an offset and a position, sorted by offset, then by position. NOWHERE is an index out of range.
#if PACKED
typedef u64 Item;
#define NOWHERE 0xffffffffULL
__device__ inline u64 offset_of(Item item) { return item >> 32; }
__device__ inline u64 position_of(Item item) { return (u32)item; }
#else
struct Item { u64 offset; u64 position; };
#define NOWHERE 0xffffffffffffffffULL
__device__ inline u64 offset_of(Item item) { return item.offset; }
__device__ inline u64 position_of(Item item) { return item.position; }
#endif

// LANES elements at once.
typedef Vec<T, LANES> V;
struct Sums { W v[LANES]; };

// The vector at a place, or the number if there are no values.
__device__ inline Sums terms(const T* values, u64 number, u64 at) {
    Sums terms;
    V x = {};
    if (values) x = ((const V*)values)[at];
#pragma unroll
    for (int l = 0; l < LANES; l++) terms.v[l] = values ? convert<W>(x.v[l]) : Number<W>::of(number);
    return terms;
}

__device__ inline void fold(Sums& sums, const Sums& more) {
#pragma unroll
    for (int l = 0; l < LANES; l++) sums.v[l] = folded(sums.v[l], more.v[l]);
}

__device__ inline void fold_into(T* out, u64 at, const Sums& sums) {
    V* place = (V*)out + at;
    V x = *place;
#pragma unroll
    for (int l = 0; l < LANES; l++) x.v[l] = convert<T>(folded(convert<W>(x.v[l]), sums.v[l]));
    *place = x;
}

// out[offset * unit + r] op= values[p, r] for all p of each offset, in the order of p. A thread accumulates the runs of
// equal offsets in `chunk` items. Runs that leave the chunk are left to segments_join: what a chunk has of a run that
// began before it is in heads, the beginning of a run that goes on after it in tails. Strides are in units of V.
extern "C" __global__ void segments(Nest<1> outer, Nest<2> inner, const Item* items, const T* values, u64 number, T* out, u64 unit, Sums* heads, Sums* tails, u64 positions, u64 block, u64 chunk) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x, c = quotient(i, block), r = i - c * block, s = c * chunk;
    if (s >= positions) return;
    u64 end = s + chunk < positions ? s + chunk : positions;
    idx at[1], in[2];
    inner.offsets((idx)r, in);
    Item item = items[s];
    u64 offset = offset_of(item);
    bool entered = s > 0 && offset_of(items[s - 1]) == offset;
    while (true) {
        u64 run = offset;
        outer.offsets((idx)position_of(item), at);
        Sums sums = terms(values, number, at[0] + in[1]);
        while (++s < positions) {
            item = items[s];
            offset = offset_of(item);
            if (s == end || offset != run) break;
            outer.offsets((idx)position_of(item), at);
            fold(sums, terms(values, number, at[0] + in[1]));
        }
        bool leaves = s < positions && offset == run;
        if (entered) heads[c * block + r] = sums;
        else if (leaves) tails[c * block + r] = sums;
        else if (run != NOWHERE) fold_into(out, run * unit + in[0], sums);
        if (s >= end) return;
        entered = false;
    }
}

// Joins the parts of runs that leave the chunk they begin in.
extern "C" __global__ void segments_join(Nest<2> inner, const Item* items, T* out, u64 unit, const Sums* heads, const Sums* tails, u64 positions, u64 block, u64 chunk) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x, c = quotient(i, block), r = i - c * block, start = c * chunk, end = start + chunk;
    if (end >= positions) return;
    u64 run = offset_of(items[end - 1]);
    if (run == NOWHERE || offset_of(items[end]) != run) return;
    // It began before this chunk.
    if (start > 0 && offset_of(items[start - 1]) == run) return;
    idx in[2];
    inner.offsets((idx)r, in);
    Sums sums = tails[c * block + r];
    for (u64 n = c + 1; n * chunk < positions && offset_of(items[n * chunk]) == run; n++) fold(sums, heads[n * block + r]);
    fold_into(out, run * unit + in[0], sums);
}
#endif

#ifdef SEGMENTS_FEW
#define MOST_POSITIONS 2048
#define ROWS 4
// The same as segments for few positions, in one launch and without sorting: out[indices[p] * stride + r] op=
// values[p, r] in the order of p. A block has ROWS positions. A warp looks for the others with its position's index:
// the first of them stands for all, the block's warps share the sums. V is LANES elements; strides are in units of it.
extern "C" __global__ void __launch_bounds__(256) segments_few(Nest<1> outer, Nest<2> inner, const i64* indices, u64 index_step, u64 size, u64 stride, const T* values, T* out, u32 positions, u64 block, Fault* fault) {
    typedef Vec<T, LANES> V;
    __shared__ u32 index_of[MOST_POSITIONS];
    __shared__ u16 alike[ROWS][MOST_POSITIONS];
    __shared__ u32 counts[ROWS];
    const u32 nowhere = 0xffffffffu;
    for (u32 p = threadIdx.x; p < positions; p += 256) {
        i64 index = wrap_index(indices[p * index_step], (i64)size, fault);
        index_of[p] = index < 0 ? nowhere : (u32)index;
    }
    __syncthreads();
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp < ROWS) {
        u32 own = blockIdx.x * ROWS + warp, index = own < positions ? index_of[own] : nowhere, count = 0;
        bool leads = index != nowhere;
        for (u32 from = 0; leads && from < positions; from += 32) {
            u32 p = from + lane;
            bool is_alike = p < positions && index_of[p] == index;
            u32 found = ballot((u32)is_alike);
            // An earlier position leads.
            leads = count > 0 || found == 0 || from + __popc((found & (0u - found)) - 1) == own;
            if (is_alike && leads) alike[warp][count + __popc(found & ((1u << lane) - 1))] = (u16)p;
            count += __popc(found);
        }
        if (lane == 0) counts[warp] = leads ? count : 0;
    }
    __syncthreads();
    // Pieces of 32 vectors; a row's pieces go to different warps, and to blocks along y.
    u32 pieces = (u32)((block + 31) / 32), mine = (pieces - blockIdx.y + gridDim.y - 1) / gridDim.y;
    for (u32 task = warp; task < ROWS * mine; task += 8) {
        u32 row = task / mine, count = counts[row];
        u64 r = (u64)(blockIdx.y + (task - row * mine) * gridDim.y) * 32 + lane;
        if (count == 0 || r >= block) continue;
        idx at[1], in[2];
        inner.offsets((idx)r, in);
        V* place = (V*)out + (u64)index_of[blockIdx.x * ROWS + row] * stride + in[0];
        V before = *place;
        W sums[LANES];
#pragma unroll 8
        for (u32 n = 0; n < count; n++) {
            outer.offsets((idx)alike[row][n], at);
            V x = ((const V*)values)[at[0] + in[1]];
#pragma unroll
            for (int l = 0; l < LANES; l++) sums[l] = n == 0 ? convert<W>(x.v[l]) : folded(sums[l], convert<W>(x.v[l]));
        }
#pragma unroll
        for (int l = 0; l < LANES; l++) before.v[l] = convert<T>(folded(convert<W>(before.v[l]), sums[l]));
        *place = before;
    }
}
#endif

#ifdef SCATTER_SUM
// Sums of integers, which do not depend on the order of additions. A is the unsigned type of T.
extern "C" __global__ void scatter_sum(Nest<3> nest, const i64* index, const T* src, u64 number, A* out, u64 count, u64 size, u64 stride, Fault* fault) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    idx at[3];
    nest.offsets((idx)i, at);
    i64 k = wrap_index(index[at[1]], (i64)size, fault);
    if (k >= 0) atomicAdd(out + at[0] + (u64)k * stride, src ? (A)src[at[2]] : (A)number);
}
#endif

#ifdef HISTOGRAM
#define SHARED_BINS 2048
// How many elements fall into each bin, as the default body computes it.
extern "C" __global__ void __launch_bounds__(256) histogram(Nest<1> nest, const T* x, u64 count, double low, double high, u64 bins, u64* out) {
    __shared__ u32 seen[SHARED_BINS];
    bool few = bins <= SHARED_BINS;
    if (few)
        for (u64 b = threadIdx.x; b < bins; b += 256) seen[b] = 0;
    __syncthreads();
    T from = (T)low, width = (T)(high - low);
    for (u64 i = blockIdx.x * 256ULL + threadIdx.x; i < count; i += gridDim.x * 256ULL) {
        idx at[1];
        nest.offsets((idx)i, at);
        T value = x[at[0]];
        if (!(value >= from && value <= (T)high)) continue;
        i64 bin = (i64)floor((value - from) * (T)bins / width);
        if (bin >= (i64)bins) bin = (i64)bins - 1;
        if (few) atomicAdd(&seen[bin], 1u);
        else atomicAdd(out + bin, (u64)1);
    }
    __syncthreads();
    if (few)
        for (u64 b = threadIdx.x; b < bins; b += 256)
            if (seen[b]) atomicAdd(out + b, (u64)seen[b]);
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

// Writes the coordinates of nonzero elements. counts[b] is the count of block b or, if `summed`, of the blocks up to b.
extern "C" __global__ void __launch_bounds__(256) nonzero(Nest<1> nest, Shape shape, const T* x, u64 count, const i64* counts, u32 summed, i64* out, u64 row_step, u64 step) {
    __shared__ u32 before[256];
    __shared__ i64 shared[8];
    i64 start = 0;
    if (summed) {
        if (blockIdx.x > 0) start = counts[blockIdx.x - 1];
    } else {
        for (u32 b = threadIdx.x; b < blockIdx.x; b += 256) start += counts[b];
        start = group_reduce<Sum, 256>(start, shared);
    }
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
    u64 row = (u64)start + before[threadIdx.x] - mine;
    for (u32 k = 0; k < 4; k++) {
        if (marks >> k & 1) {
            u64 rest = first + k;
            for (int d = (int)shape.rank - 1; d >= 0; d--) {
                u64 size = shape.sizes[d], whole = quotient(rest, size);
                out[row * row_step + d * step] = (i64)(rest - whole * size);
                rest = whole;
            }
            row++;
        }
    }
}
#endif
