// CUDA's built-ins that kernel texts use, defined for AMD. Precedes prelude.cu when AMD's compiler is used.
//
// Lanes work together in groups of at most 32: a whole wavefront of RDNA GPUs (gfx10 and later), half a wavefront of
// CDNA GPUs (gfx9), where both halves run the same instructions. So shuffles have a width of 32, and a group works
// even if the wavefront's other half has exited or takes another branch.

#define __shfl_xor_sync(group, x, lanes) __shfl_xor(x, lanes, 32)
#define __shfl_down_sync(group, x, lanes) __shfl_down(x, lanes, 32)

#ifndef EMULATED
// Lanes of a wavefront run in step: only the compiler must not move memory accesses across.
__device__ inline void sync_lanes() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#endif
#define __syncwarp() sync_lanes()

// Unfused sums and products, and correctly rounded roots: AMD's functions of these names guarantee neither.
#ifdef EMULATED
#define NOT_FUSED
#else
#define NOT_FUSED _Pragma("clang fp contract(off)")
#endif
__device__ inline float add_apart(float a, float b) { NOT_FUSED return a + b; }
__device__ inline float multiply_apart(float a, float b) { NOT_FUSED return a * b; }
__device__ inline double add_apart(double a, double b) { NOT_FUSED return a + b; }
__device__ inline double multiply_apart(double a, double b) { NOT_FUSED return a * b; }
#define __fadd_rn add_apart
#define __fmul_rn multiply_apart
#define __dadd_rn add_apart
#define __dmul_rn multiply_apart
#define __fdiv_rn(a, b) ((float)(a) / (float)(b))
#define __ddiv_rn(a, b) ((double)(a) / (double)(b))
#define __fsqrt_rn(x) sqrtf(x)
#define __dsqrt_rn(x) sqrt(x)
