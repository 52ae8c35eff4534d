// Shared by kernels of pointwise steps.
//
// ROW: a function for each step that is a row of the op table. PARAMETERS: declarations of numbers and of rows'
// parameters. LOADS: the lanes of each input. STEPS: the values of lane v.

namespace rl {

ROW

}  // namespace rl

struct FusedArguments {
    const void* inputs[16];
    void* outputs[8];
    u64 numbers[32];
    double params[32];
};

template <class T, int MODE> __device__ inline void fused_load(const void* base, idx offset, idx stride, T (&x)[LANES]) {
    const T* p = (const T*)base + offset;
    if (MODE == 0) {
        Vec<T, LANES> all = *(const Vec<T, LANES>*)p;
#pragma unroll
        for (int v = 0; v < LANES; v++) x[v] = all.v[v];
    } else if (MODE == 1) {
        T one = *p;
#pragma unroll
        for (int v = 0; v < LANES; v++) x[v] = one;
    } else {
#pragma unroll
        for (int v = 0; v < LANES; v++) x[v] = p[v * stride];
    }
}
