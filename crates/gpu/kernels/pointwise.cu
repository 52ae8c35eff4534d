// Pointwise ops: one kernel for every row of the op table, and for copies, fills and selections.
//
// C: the dtype arithmetic is carried out in; R: the type it is computed in (small integers in int).
// ROW: the function `row_value` with the op's expression. PARAMETERS: declarations of the op's parameters. LOADS: a
// load for each of the INPUTS, lanes of iteration u into x[i][u]. RESULT: lane v of the output. A thread computes LANES
// neighbours of the output, UNROLL times, THREADS apart.

namespace rl {

ROW

}  // namespace rl

struct Inputs {
    const void* tensors[5];
    u64 numbers[5];
    double params[4];
};

// Load modes of an input's lanes: adjacent, broadcast, strided, scalar.
#define LANES_NEXT 0
#define LANES_SAME 1
#define LANES_APART 2

template <class T, int MODE> __device__ inline void load(const void* base, idx offset, idx stride, R (&x)[LANES]) {
    const T* p = (const T*)base + offset;
    if (MODE == LANES_NEXT) {
        Vec<T, LANES> all = *(const Vec<T, LANES>*)p;
#pragma unroll
        for (int v = 0; v < LANES; v++) x[v] = (R)convert<C>(all.v[v]);
    } else if (MODE == LANES_SAME) {
        R one = (R)convert<C>(*p);
#pragma unroll
        for (int v = 0; v < LANES; v++) x[v] = one;
    } else {
#pragma unroll
        for (int v = 0; v < LANES; v++) x[v] = (R)convert<C>(p[v * stride]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) pointwise(Nest<OPERANDS> nest, Inputs in, OUT* out, idx count) {
    PARAMETERS
    idx first = blockIdx.x * (idx)(THREADS * UNROLL) + threadIdx.x;
    idx offsets[UNROLL][OPERANDS];
    R x[INPUTS][UNROLL][LANES];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        idx at = first + u * THREADS;
        if (at < count) {
            nest.offsets(at, offsets[u]);
            LOADS
        }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        idx at = first + u * THREADS;
        if (at < count) {
            Vec<OUT, LANES> y;
#pragma unroll
            for (int v = 0; v < LANES; v++) y.v[v] = RESULT;
            *(Vec<OUT, LANES>*)(out + offsets[u][0]) = y;
        }
    }
}
