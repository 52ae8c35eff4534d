// Prelude of every kernel: element types, conversions, index arithmetic, reductions within a block, random
// words. No headers: the functions used here are built into NVRTC. PTX exists only on NVIDIA GPUs. It is used only in
// functions below that also have a plain form, and in flash.cu, which attention.cu replaces elsewhere.

typedef unsigned char u8;
typedef signed char i8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#ifdef WIDE
typedef u64 idx;
#else
typedef u32 idx;
#endif

#ifdef INFINITY
#undef INFINITY
#endif
#define INFINITY __longlong_as_double(0x7ff0000000000000LL)
#define NAN_DOUBLE __longlong_as_double(0x7ff8000000000000LL)
#define FULL_WARP 0xffffffffu

struct alignas(2) f16 { u16 bits; };
struct alignas(2) bf16 { u16 bits; };
struct bool8 { u8 bits; };

template <class T, int N> struct alignas(sizeof(T) * N) Vec { T v[N]; };
typedef Vec<u32, 4> Vec16;

// ---- conversions ----------------------------------------------------------------------------------------------------

#ifdef __HIP__
__device__ inline float half_to_float(u16 bits) {
    union { u16 bits; _Float16 value; } half = {bits};
    return (float)half.value;
}

__device__ inline u16 float_to_half(float x) {
    union { _Float16 value; u16 bits; } half = {(_Float16)x};
    return half.bits;
}
#else
__device__ inline float half_to_float(u16 bits) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
    return y;
}

__device__ inline u16 float_to_half(float x) {
    u16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
#endif

// 2 to the power of x, accurate to all but the last two bits; subnormal results are zero.
__device__ inline float exp2_fast(float x) {
#ifdef __HIP__
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

__device__ inline u16 float_to_bfloat(float x) {
#if __CUDA_ARCH__ >= 800
    u16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
#else
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)(bits >> 16 | 0x40);
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
#endif
}

// The value of an element in a built-in arithmetic type.
__device__ inline float plain(f16 x) { return half_to_float(x.bits); }
__device__ inline float plain(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ inline i32 plain(bool8 x) { return x.bits != 0; }
__device__ inline float plain(float x) { return x; }
__device__ inline double plain(double x) { return x; }
__device__ inline i64 plain(i64 x) { return x; }
__device__ inline i32 plain(i32 x) { return x; }
__device__ inline i32 plain(i16 x) { return x; }
__device__ inline i32 plain(i8 x) { return x; }
__device__ inline i32 plain(u8 x) { return x; }

// Floats to integers: towards zero, NaN to zero, then the low bits.
__device__ inline i64 to_int(float x) { return x != x ? 0 : (i64)x; }
__device__ inline i64 to_int(double x) { return x != x ? 0 : (i64)x; }
__device__ inline i64 to_int(i64 x) { return x; }
__device__ inline i64 to_int(i32 x) { return x; }

template <class To> struct Cast;
template <> struct Cast<float> { template <class P> static __device__ float of(P x) { return (float)x; } };
template <> struct Cast<double> { template <class P> static __device__ double of(P x) { return (double)x; } };
template <> struct Cast<f16> { template <class P> static __device__ f16 of(P x) { return f16{float_to_half((float)x)}; } };
template <> struct Cast<bf16> { template <class P> static __device__ bf16 of(P x) { return bf16{float_to_bfloat((float)x)}; } };
template <> struct Cast<bool8> { template <class P> static __device__ bool8 of(P x) { return bool8{(u8)(x != 0)}; } };
template <> struct Cast<i64> { template <class P> static __device__ i64 of(P x) { return to_int(x); } };
template <> struct Cast<i32> { template <class P> static __device__ i32 of(P x) { return (i32)to_int(x); } };
template <> struct Cast<i16> { template <class P> static __device__ i16 of(P x) { return (i16)to_int(x); } };
template <> struct Cast<i8> { template <class P> static __device__ i8 of(P x) { return (i8)to_int(x); } };
template <> struct Cast<u8> { template <class P> static __device__ u8 of(P x) { return (u8)to_int(x); } };

template <class To, class From> struct Convert { static __device__ To of(From x) { return Cast<To>::of(plain(x)); } };
template <class T> struct Convert<T, T> { static __device__ T of(T x) { return x; } };
template <class To, class From> __device__ inline To convert(From x) { return Convert<To, From>::of(x); }

// A number passed as the bits of a double or of an integer.
template <class To> struct Number { static __device__ To of(u64 bits) { return convert<To>((double)__longlong_as_double((i64)bits)); } };
#define INTEGER_NUMBER(T) template <> struct Number<T> { static __device__ T of(u64 bits) { return convert<T>((i64)bits); } };
INTEGER_NUMBER(i64) INTEGER_NUMBER(i32) INTEGER_NUMBER(i16) INTEGER_NUMBER(i8) INTEGER_NUMBER(u8) INTEGER_NUMBER(bool8)

// ---- index arithmetic -----------------------------------------------------------------------------------------------

#define MAX_RANK 10

// a / b; divisions of 32 bits are much faster.
__device__ inline u64 quotient(u64 a, u64 b) { return (a | b) >> 32 ? a / b : (u64)((u32)a / (u32)b); }

// Loops over N operands, innermost first. Division by the sizes is a multiplication if positions have 32 bits.
template <int N> struct Nest {
    u32 rank;
    u32 magic[MAX_RANK];
    u32 shift[MAX_RANK];
    u64 shape[MAX_RANK];
    i64 strides[N][MAX_RANK];

    __device__ inline idx divide(idx i, int d) const {
#ifdef WIDE
        // Nearly all positions have 31 bits, whatever the tensor.
        return i >> 31 ? i / shape[d] : (u64)((__umulhi((u32)i, magic[d]) + (u32)i) >> shift[d]);
#else
        return (__umulhi(i, magic[d]) + i) >> shift[d];
#endif
    }

    __device__ inline void offsets(idx i, idx (&o)[N]) const {
#pragma unroll
        for (int k = 0; k < N; k++) o[k] = 0;
#ifdef ONE_LOOP
#pragma unroll
        for (int k = 0; k < N; k++) o[k] = i * (idx)strides[k][0];
#else
#pragma unroll
        for (int d = 0; d < MAX_RANK; d++) {
            if (d + 1 >= rank) {
#pragma unroll
                for (int k = 0; k < N; k++) o[k] += i * (idx)strides[k][d];
                break;
            }
            idx q = divide(i, d);
            idx r = i - q * (idx)shape[d];
#pragma unroll
            for (int k = 0; k < N; k++) o[k] += r * (idx)strides[k][d];
            i = q;
        }
#endif
    }
};

// ---- indices from memory --------------------------------------------------------------------------------------------

struct Fault { u32 there; u32 size; i64 index; u32* taken; };

// Records an index out of range, unless one is recorded already.
__device__ inline void note_fault(i64 index, i64 size, Fault* fault) {
    if (atomicCAS(fault->taken, 0u, 1u) == 0u) {
        fault->index = index;
        fault->size = (u32)size;
        __threadfence_system();
        fault->there = 1u;
    }
}

// The index as a non-negative number. Records one out of range and returns -1.
__device__ inline i64 wrap_index(i64 index, i64 size, Fault* fault) {
    i64 wrapped = index < 0 ? index + size : index;
    if (wrapped >= 0 && wrapped < size) return wrapped;
    note_fault(index, size, fault);
    return -1;
}

// ---- reductions within a warp and a block ---------------------------------------------------------------------------

template <class A> __device__ inline A shuffle_xor(A a, int mask) {
    static_assert(sizeof(A) % 4 == 0, "whole words");
    A b;
    u32* from = reinterpret_cast<u32*>(&a);
    u32* to = reinterpret_cast<u32*>(&b);
#pragma unroll
    for (int i = 0; i < (int)(sizeof(A) / 4); i++) to[i] = __shfl_xor_sync(FULL_WARP, from[i], mask);
    return b;
}

// The lanes of a warp (of a group of 32) whose `yes` is not zero. All lanes call it.
__device__ inline u32 ballot(u32 yes) {
#if defined(EMULATED)
    u32 set = yes ? 1u << threadIdx.x % 32 : 0;
    for (int mask = 16; mask > 0; mask /= 2) set |= __shfl_xor_sync(FULL_WARP, set, mask);
    return set;
#elif defined(__HIP__)
    return (u32)(__ballot((int)yes) >> (__lane_id() & 32));
#else
    return __ballot_sync(FULL_WARP, yes);
#endif
}

struct Sum { template <class A> static __device__ A merge(A a, A b) { return a + b; } };
// Propagates NaN.
struct Largest { template <class A> static __device__ A merge(A a, A b) { return (a > b || a != a) ? a : b; } };

// All threads of a group of THREADS (a power of two within a warp, or whole warps of a block with only one group) get
// the result.
template <class Op, int THREADS, class A> __device__ inline A group_reduce(A a, A* shared) {
#pragma unroll
    for (int m = (THREADS < 32 ? THREADS : 32) / 2; m > 0; m /= 2) a = Op::merge(a, shuffle_xor(a, m));
    if (THREADS > 32) {
        __syncthreads();
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = a;
        __syncthreads();
        a = shared[0];
#pragma unroll
        for (int w = 1; w < THREADS / 32; w++) a = Op::merge(a, shared[w]);
    }
    return a;
}

// ---- random words: Philox-4x32-10, as rushlight_core::Philox --------------------------------------------------------

struct Philox { u64 seed; u64 offset; };

// The stream's own seed and offset. In a recorded step `seed` is the address of those of the current replay.
__device__ inline Philox resolved(Philox stream) {
    if (stream.offset >> 63) {
        const u64* start = (const u64*)stream.seed;
        stream.offset = (stream.offset & ~(1ull << 63)) + start[1];
        stream.seed = start[0];
    }
    return stream;
}

// Four words of a resolved stream.
__device__ inline void philox_words(const Philox& stream, u64 index, u32 (&c)[4]) {
    u64 counter = stream.offset + index;
    u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = 0, c3 = 0;
    u32 k0 = (u32)stream.seed, k1 = (u32)(stream.seed >> 32);
#pragma unroll
    for (int i = 0; i < 10; i++) {
        u32 h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        u32 h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    c[0] = c0, c[1] = c1, c[2] = c2, c[3] = c3;
}

__device__ inline void philox_block(const Philox& stream, u64 index, u32 (&c)[4]) { philox_words(resolved(stream), index, c); }
