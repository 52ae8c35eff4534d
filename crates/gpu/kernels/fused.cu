// Pointwise steps in one pass. A thread computes LANES neighbours. Operands of the nest are the outputs, then the
// inputs. STORES: the lanes of each output. The text of fused_parts.cu precedes this one.

extern "C" __global__ void __launch_bounds__(THREADS) fused(Nest<OPERANDS> nest, FusedArguments in, idx count) {
    PARAMETERS
    idx at = blockIdx.x * (idx)THREADS + threadIdx.x;
    if (at >= count) return;
    idx offsets[OPERANDS];
    nest.offsets(at, offsets);
    LOADS
    RESULTS
#pragma unroll
    for (int v = 0; v < LANES; v++) {
        STEPS
    }
    STORES
}
