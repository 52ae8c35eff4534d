// Collectives over memory that processes share: flags that signal when data is ready, and sums of several ranks' data.
// W: the type in which elements are combined. OP: the number of the `ReduceOp`.

#define RANKS 16
#define FLAGS 64

enum { SUM, MEAN, MIN, MAX, PRODUCT, BIT_AND, BIT_OR, BIT_XOR };

#ifdef COMBINE
struct Sources { u64 ranks; const T* x[RANKS]; };

template <class A> struct Combine {
    static __device__ A of(A a, A b) {
        if (OP == SUM || OP == MEAN) return a + b;
        if (OP == PRODUCT) return a * b;
        if (OP == MIN) return b < a || b != b ? b : a;
        return b > a || b != b ? b : a;
    }
};
template <> struct Combine<i64> {
    static __device__ i64 of(i64 a, i64 b) {
        switch (OP) {
            case SUM: case MEAN: return (i64)((u64)a + (u64)b);
            case PRODUCT: return (i64)((u64)a * (u64)b);
            case MIN: return b < a ? b : a;
            case MAX: return b > a ? b : a;
            case BIT_AND: return a & b;
            case BIT_OR: return a | b;
            default: return a ^ b;
        }
    }
};

// Adds the ranks' elements in rank order, so that all ranks get the same sum.
extern "C" __global__ void __launch_bounds__(256) combine(Sources s, T* out, u64 count) {
    for (u64 i = blockIdx.x * (u64)256 + threadIdx.x; i < count; i += gridDim.x * (u64)256) {
        W total = convert<W>(s.x[0][i]);
        for (u64 r = 1; r < s.ranks; r++) total = Combine<W>::of(total, convert<W>(s.x[r][i]));
        if (OP == MEAN) total = total / (W)s.ranks;
        out[i] = convert<T>(total);
    }
}
#endif

#ifdef SIGNAL
struct Flags { u32 count; u32 pad; u64 reset; u32* at[FLAGS]; };

// Waits until all flags are set, then clears those whose bit is set in the mask.
extern "C" __global__ void __launch_bounds__(64) await_flags(Flags f) {
    if (threadIdx.x < f.count) {
        volatile u32* at = f.at[threadIdx.x];
        while (*at == 0) {
#if __CUDA_ARCH__ >= 700 || defined(EMULATED)
            __nanosleep(200);
#endif
        }
        if (f.reset >> threadIdx.x & 1) *at = 0;
    }
    __threadfence_system();
}

extern "C" __global__ void __launch_bounds__(64) raise_flags(Flags f) {
    __threadfence_system();
    if (threadIdx.x < f.count) *(volatile u32*)f.at[threadIdx.x] = 1;
}
#endif
