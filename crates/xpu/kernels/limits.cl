// Peak rates of a device: kernels that only multiply and add, or only copy. V: a vector of LANES floats.

#ifdef FMA
// CHAINS independent sums in registers hide the latency of the multiply-add.
__kernel void fma_peak(__global float* out, const float factor, const ulong steps) {
    V acc[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; c++) acc[c] = (V)(float)(get_global_id(0) + c);
    const V f = (V)factor;
    for (ulong s = 0; s < steps; s++) {
#pragma unroll
        for (int c = 0; c < CHAINS; c++) acc[c] = fma(acc[c], f, f);
    }
    V all = acc[0];
#pragma unroll
    for (int c = 1; c < CHAINS; c++) all += acc[c];
#if LANES == 1
    out[get_global_id(0)] = all;
#else
    vstore16(all, get_global_id(0), out);
#endif
}
#endif

#ifdef COPY
// Each work item copies `each` vectors; neighbouring work items copy neighbouring vectors.
__kernel void copy_peak(const __global V* from, __global V* to, const ulong each) {
#if LANES == 1
    const size_t first = get_group_id(0) * get_local_size(0) * each + get_local_id(0), step = get_local_size(0);
#else
    const size_t first = get_global_id(0) * each, step = 1;
#endif
    for (ulong i = 0; i < each; i++) to[first + i * step] = from[first + i * step];
}
#endif
