// Pointwise steps and reductions of rows in one pass. The text of fused_parts.cu precedes this one.
//
// TPR threads have a row; a block has THREADS / TPR rows. BODY: a loop over the row's vectors for each reduction and
// one that stores, with values per row between them. Vector `at` of a row is LANES neighbours. Operands of both nests
// are the outputs, then the inputs; `kept` finds a row, `along` a vector in it.

// Propagates NaN.
struct Smallest { template <class A> static __device__ A merge(A a, A b) { return (a < b || a != a) ? a : b; } };

extern "C" __global__ void __launch_bounds__(THREADS) fused_rows(Nest<OPERANDS> kept, Nest<OPERANDS> along, FusedArguments in, u64 rows, u64 vectors, double count) {
    PARAMETERS
    __shared__ u64 shared[32];
    u64 row = blockIdx.x * (u64)(THREADS / TPR) + threadIdx.x / TPR;
    u32 lane = threadIdx.x % TPR;
    if (row >= rows) return;
    idx base[OPERANDS];
    kept.offsets((idx)row, base);
    BODY
}
