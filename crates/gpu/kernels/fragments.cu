// Fragments: operands and results of tensor-core products in the registers of a warp. Of 16 by 8 accumulators a thread
// has two neighbours in row lane / 4 and two in the row eight further down. T is a half type.

#if IS_BF16
#define MMA_DTYPE "bf16"
#else
#define MMA_DTYPE "f16"
#endif

// A 16 by 16 piece of a first operand.
typedef u32 Fragment[4];

#ifndef EMULATED
__device__ inline u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ inline u32 packed(float low, float high) {
    u32 y;
    asm("cvt.rn." MMA_DTYPE "x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
#endif

template <int N> __device__ inline void clear(float (&c)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
}

// Accumulators as a first operand: two neighbouring 16 by 8 pieces make a fragment.
template <int N> __device__ inline void as_operand(Fragment (&a)[N], const float (&p)[2 * N][4]) {
#pragma unroll
    for (int k = 0; k < N; k++) {
        a[k][0] = packed(p[2 * k][0], p[2 * k][1]);
        a[k][1] = packed(p[2 * k][2], p[2 * k][3]);
        a[k][2] = packed(p[2 * k + 1][0], p[2 * k + 1][1]);
        a[k][3] = packed(p[2 * k + 1][2], p[2 * k + 1][3]);
    }
}
