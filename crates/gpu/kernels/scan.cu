// Scans along one dimension. The accumulator W is double for floats, i64 for integers.
// LINE_PER_THREAD: each thread walks a line, neighbouring threads neighbouring lines. Otherwise a block walks a line, a
// tile at a time.

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

extern "C" __global__ void scan(Nest<3> lines, const T* x, OUT* out, i64* indices, u64 count, u64 length, u64 x_step, u64 out_step, u64 index_step) {
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
    __shared__ Carry tile[256];
    lines.offsets((idx)blockIdx.x, at);
    Carry carry = nothing();
    for (u64 start = 0; start < length; start += 256) {
        u64 i = start + threadIdx.x;
        Carry mine = nothing();
        if (i < length) {
            mine.a = convert<W>(x[at[0] + i * x_step]);
            mine.index = (i64)i;
        }
        tile[threadIdx.x] = mine;
        __syncthreads();
        for (u32 reach = 1; reach < 256; reach *= 2) {
            Carry before = nothing();
            if (threadIdx.x >= reach) before = tile[threadIdx.x - reach];
            __syncthreads();
            mine = joined(before, mine);
            tile[threadIdx.x] = mine;
            __syncthreads();
        }
        Carry here = joined(carry, mine);
        if (i < length) {
            out[at[1] + i * out_step] = convert<OUT>(here.a);
            if (OP_CODE >= MAX) indices[at[2] + i * index_step] = here.index;
        }
        carry = joined(carry, tile[255]);
        __syncthreads();
    }
#endif
}
