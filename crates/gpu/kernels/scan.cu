// Scans along one dimension. The accumulator W is double for floats, i64 for integers.
// LINE_PER_THREAD: each thread walks a line, neighbouring threads neighbouring lines. Otherwise a block walks a line
// or, where lines are few and long, a chunk of one, a tile at a time.

enum { SUM, PROD, LOGSUMEXP, MAX, MIN };

struct Carry { W a; i64 index; };

__device__ inline Carry nothing() {
    Carry c;
    c.a = OP_CODE == PROD ? (W)1 : (W)0;
    c.index = -1;
    return c;
}

__device__ inline double exponential(double x) { return exp(x); }
__device__ inline i64 exponential(i64 x) { return x; }
__device__ inline double log_one_plus(double x) { return log1p(x); }
__device__ inline i64 log_one_plus(i64 x) { return x; }

// `b` follows `a`. An index of -1 means that no element was seen yet.
__device__ inline Carry joined(Carry a, Carry b) {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    Carry c = b;
    if (OP_CODE == SUM) c.a = a.a + b.a;
    else if (OP_CODE == PROD) c.a = a.a * b.a;
    else if (OP_CODE == LOGSUMEXP) {
        W low = a.a < b.a || a.a != a.a ? a.a : b.a, high = a.a > b.a || a.a != a.a ? a.a : b.a;
        // The difference of equal infinities would be NaN.
        c.a = low == high && low - low != 0 ? low : high + log_one_plus(exponential(low - high));
    } else {
        // The last of equal elements; NaN stays.
        bool later = OP_CODE == MAX ? b.a >= a.a : b.a <= a.a;
        if (b.a != b.a) later = true;
        if (a.a != a.a) later = b.a != b.a;
        if (!later) c = a;
    }
    return c;
}

#define ITEMS 8  // neighbouring elements per thread
#define TILE (256 * ITEMS)

// The sum of all elements before a thread's own in its tile, from the sum of its own; `all` gets that of the tile.
__device__ inline Carry before_mine(Carry mine, Carry& all, Carry* shared) {
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (u32 reach = 1; reach < 256; reach *= 2) {
        Carry before = nothing();
        if (threadIdx.x >= reach) before = shared[threadIdx.x - reach];
        __syncthreads();
        mine = joined(before, mine);
        shared[threadIdx.x] = mine;
        __syncthreads();
    }
    all = shared[255];
    Carry before = threadIdx.x > 0 ? shared[threadIdx.x - 1] : nothing();
    __syncthreads();
    return before;
}

// The running sums of a thread's elements among those of [start, end) of a line.
__device__ inline void own_sums(Carry (&sums)[ITEMS], const T* x, u64 step, u64 start, u64 end) {
    Carry sum = nothing();
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        u64 i = start + threadIdx.x * ITEMS + k;
        if (i < end) {
            Carry one;
            one.a = convert<W>(x[i * step]);
            one.index = (i64)i;
            sum = joined(sum, one);
        }
        sums[k] = sum;
    }
}

// A line is scanned by `chunks` blocks, each of which starts with its carry, if there are any.
extern "C" __global__ void __launch_bounds__(256) scan(Nest<3> lines, const T* x, OUT* out, i64* indices, u64 count, u64 length, u64 x_step, u64 out_step, u64 index_step, const Carry* carries, u64 chunk, u64 chunks) {
    idx at[3];
#if LINE_PER_THREAD
    u64 line = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (line >= count) return;
    lines.offsets((idx)line, at);
    Carry carry = nothing();
    for (u64 i = 0; i < length; i++) {
        Carry one;
        one.a = convert<W>(x[at[0] + i * x_step]);
        one.index = (i64)i;
        carry = joined(carry, one);
        out[at[1] + i * out_step] = convert<OUT>(carry.a);
        if (OP_CODE >= MAX) indices[at[2] + i * index_step] = carry.index;
    }
#else
    __shared__ Carry shared[256];
    lines.offsets((idx)(blockIdx.x / chunks), at);
    u64 first = blockIdx.x % chunks * chunk, end = first + chunk < length ? first + chunk : length;
    Carry carry = carries ? carries[blockIdx.x] : nothing(), all;
    for (u64 start = first; start < end; start += TILE) {
        Carry sums[ITEMS];
        own_sums(sums, x + at[0], x_step, start, end);
        Carry before = joined(carry, before_mine(sums[ITEMS - 1], all, shared));
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            u64 i = start + threadIdx.x * ITEMS + k;
            if (i >= end) break;
            Carry here = joined(before, sums[k]);
            out[at[1] + i * out_step] = convert<OUT>(here.a);
            if (OP_CODE >= MAX) indices[at[2] + i * index_step] = here.index;
        }
        carry = joined(carry, all);
    }
#endif
}

// The sum of each chunk.
extern "C" __global__ void __launch_bounds__(256) scan_chunks(Nest<3> lines, const T* x, u64 length, u64 x_step, Carry* carries, u64 chunk, u64 chunks) {
    __shared__ Carry shared[256];
    idx at[3];
    lines.offsets((idx)(blockIdx.x / chunks), at);
    u64 first = blockIdx.x % chunks * chunk, end = first + chunk < length ? first + chunk : length;
    Carry carry = nothing(), all;
    for (u64 start = first; start < end; start += TILE) {
        Carry sums[ITEMS];
        own_sums(sums, x + at[0], x_step, start, end);
        before_mine(sums[ITEMS - 1], all, shared);
        carry = joined(carry, all);
    }
    if (threadIdx.x == 0) carries[blockIdx.x] = carry;
}

// The chunks' sums become what comes before each; a line to a block.
extern "C" __global__ void __launch_bounds__(256) scan_carries(Carry* carries, u64 chunks) {
    __shared__ Carry shared[256];
    carries += blockIdx.x * chunks;
    Carry carry = nothing(), all;
    for (u64 start = 0; start < chunks; start += 256) {
        u64 i = start + threadIdx.x;
        Carry mine = i < chunks ? carries[i] : nothing();
        Carry before = joined(carry, before_mine(mine, all, shared));
        if (i < chunks) carries[i] = before;
        carry = joined(carry, all);
    }
}
