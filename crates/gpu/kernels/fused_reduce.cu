// Sums of a value of pointwise steps, which is never stored. The text of fused_parts.cu precedes this one.
//
// THREADS_IN threads split an output's elements; a block has THREADS_OUT outputs. ALONG: neighbouring threads, and a
// thread's LANES, have neighbouring outputs, otherwise neighbouring elements of one output. Elements of few outputs are
// split into gridDim.y pieces, whose sums another kernel adds. Operands of both nests are the output, then the inputs.
// A is the type of sums, OUT that of results, VALUE the step that is summed.

extern "C" __global__ void __launch_bounds__(256) fused_reduce(Nest<OPERANDS> kept, Nest<OPERANDS> reduced, FusedArguments in, u64 outputs, u64 length, u64 piece, u64 all, double count) {
    PARAMETERS
    const int OWN = ALONG ? LANES : 1;
    __shared__ A shared[256 * OWN];
    u32 o = ALONG ? threadIdx.x % THREADS_OUT : threadIdx.x / THREADS_IN, mine = ALONG ? threadIdx.x / THREADS_OUT : threadIdx.x % THREADS_IN;
    u64 output = blockIdx.x * (u64)THREADS_OUT + o, first = blockIdx.y * piece, last = first + piece < length ? first + piece : length;
    A acc[LANES];
#pragma unroll
    for (int v = 0; v < LANES; v++) acc[v] = 0;
    idx base[OPERANDS];
    kept.offsets((idx)(output < outputs ? output : 0), base);
    if (output < outputs) {
#pragma unroll 2
        for (u64 e = first + mine; e < last; e += THREADS_IN) {
            idx offsets[OPERANDS];
            reduced.offsets((idx)e, offsets);
#pragma unroll
            for (int k = 0; k < OPERANDS; k++) offsets[k] += base[k];
            LOADS
#pragma unroll
            for (int v = 0; v < LANES; v++) {
                STEPS
                acc[v] += convert<A>(VALUE);
            }
        }
    }
    if (!ALONG) {
#pragma unroll
        for (int v = 1; v < LANES; v++) acc[0] += acc[v];
    }
    u32 place = o * THREADS_IN + mine;
#pragma unroll
    for (int v = 0; v < OWN; v++) shared[v * 256 + place] = acc[v];
    for (u32 half = THREADS_IN / 2; half > 0; half /= 2) {
        __syncthreads();
        if (mine < half) {
#pragma unroll
            for (int v = 0; v < OWN; v++) shared[v * 256 + place] = acc[v] += shared[v * 256 + place + half];
        }
    }
    if (mine != 0 || output >= outputs) return;
    OUT* to = (OUT*)in.outputs[0] + blockIdx.y * all + base[0];
    idx stride = (idx)(kept.strides[0][0] / LANES);
#pragma unroll
    for (int v = 0; v < OWN; v++) to[v * stride] = convert<OUT>(acc[v] / (A)count);
}
