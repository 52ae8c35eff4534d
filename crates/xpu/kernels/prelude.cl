// Prelude of every kernel: element types, conversions, index arithmetic, faults, random words.
//
// OpenCL C 1.2, so that every driver compiles it. Half types are stored as ushort and computed in float. FP64: whether
// the device has double.

#if FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#pragma OPENCL FP_CONTRACT OFF

// ---- elements -------------------------------------------------------------------------------------------------------

#define PLAIN_ELEMENT(tag, type, wide_type)                                                   \
    inline wide_type load_##tag(const __global type* p, size_t i) { return (wide_type)p[i]; } \
    inline void store_##tag(__global type* p, size_t i, wide_type v) { p[i] = (type)v; }
PLAIN_ELEMENT(f32, float, float)
PLAIN_ELEMENT(i64, long, long)
PLAIN_ELEMENT(i32, int, int)
PLAIN_ELEMENT(i16, short, int)
PLAIN_ELEMENT(i8, char, int)
PLAIN_ELEMENT(u8, uchar, int)
#if FP64
PLAIN_ELEMENT(f64, double, double)
#endif
inline int load_b8(const __global uchar* p, size_t i) { return p[i] != 0; }
inline void store_b8(__global uchar* p, size_t i, int v) { p[i] = v != 0; }

inline float bf16_to_float(ushort bits) { return as_float((uint)bits << 16); }
inline ushort float_to_bf16(float x) {
    uint bits = as_uint(x);
    return (bits & 0x7fffffffu) > 0x7f800000u ? (ushort)(bits >> 16 | 0x40)
        : (ushort)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
inline float load_bf16(const __global ushort* p, size_t i) { return bf16_to_float(p[i]); }
inline void store_bf16(__global ushort* p, size_t i, float v) { p[i] = float_to_bf16(v); }

// Multiplies by a power of two, which is also correct for subnormal halves: no table and no branch, so that compilers
// vectorise it.
inline float f16_to_float(ushort bits) {
    uint magnitude = (uint)(bits & 0x7fffu) << 13;
    float value = as_float(magnitude) * 0x1p112f;
    uint special = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : as_uint(value);
    return as_float(special | (uint)(bits & 0x8000u) << 16);
}
inline ushort float_to_f16(float x) {
    uint bits = as_uint(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    // Normal halves: round the dropped bits to even. Subnormal halves: add a number whose last bit has the value of
    // theirs.
    uint normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    uint tiny = as_uint(as_float(magnitude) + 0.5f) - 0x3f000000u;
    uint half_bits = magnitude < 0x38800000u ? tiny : normal;
    half_bits = magnitude >= 0x477ff000u ? 0x7c00u : half_bits;
    half_bits = magnitude > 0x7f800000u ? 0x7e00u : half_bits;
    return (ushort)(sign | half_bits);
}
inline float load_f16(const __global ushort* p, size_t i) { return f16_to_float(p[i]); }
inline void store_f16(__global ushort* p, size_t i, float v) { p[i] = float_to_f16(v); }

// Floats to integers: rounds towards zero, NaN to zero, saturates.
inline long float_to_long(float x) {
    return x != x ? 0 : x >= 9223372036854775808.0f ? LONG_MAX : x <= -9223372036854775808.0f ? LONG_MIN : (long)x;
}
#if FP64
inline long double_to_long(double x) {
    return x != x ? 0 : x >= 9223372036854775808.0 ? LONG_MAX : x <= -9223372036854775808.0 ? LONG_MIN : (long)x;
}
#endif

// ---- index arithmetic -----------------------------------------------------------------------------------------------

#define MAX_RANK 10

// Loops over N operands, innermost first; division by the sizes is a multiplication if positions have 31 bits
// (NARROW).
#define NEST(N)                    \
    struct {                       \
        uint rank;                 \
        uint magic[MAX_RANK];      \
        uint shift[MAX_RANK];      \
        ulong shape[MAX_RANK];     \
        long strides[N][MAX_RANK]; \
    }

#ifdef NARROW
#define NEST_DIVIDE(nest, i, d) ((ulong)((mul_hi((uint)(i), (nest).magic[d]) + (uint)(i)) >> (nest).shift[d]))
#else
#define NEST_DIVIDE(nest, i, d) ((i) / (nest).shape[d])
#endif

// Offsets of position `position` in all operands, from loop `from` on, added to the array `at`.
#define NEST_OFFSETS(nest, N, position, from, at)                                               \
    do {                                                                                        \
        ulong rest_ = (position);                                                               \
        for (uint d_ = (from); d_ < (nest).rank; d_++) {                                        \
            ulong quotient_ = d_ + 1 < (nest).rank ? NEST_DIVIDE(nest, rest_, d_) : 0;          \
            ulong digit_ = rest_ - quotient_ * (nest).shape[d_];                                \
            for (int k_ = 0; k_ < (N); k_++) (at)[k_] += (long)digit_ * (nest).strides[k_][d_]; \
            rest_ = quotient_;                                                                  \
        }                                                                                       \
    } while (0)

// ---- indices from memory --------------------------------------------------------------------------------------------

typedef struct { uint taken; uint there; long index; long size; } Fault;

// Records an index out of range, unless one is recorded already.
inline void note_fault(long index, long size, __global Fault* fault) {
    if (atomic_cmpxchg((volatile __global uint*)&fault->taken, 0u, 1u) == 0u) {
        fault->index = index;
        fault->size = size;
        fault->there = 1u;
    }
}

// The index as a non-negative number. Records one out of range and returns -1.
inline long wrap_index(long index, long size, __global Fault* fault) {
    long wrapped = index < 0 ? index + size : index;
    if (wrapped >= 0 && wrapped < size) return wrapped;
    note_fault(index, size, fault);
    return -1;
}

// ---- random words: Philox-4x32-10, as rushlight_core::Philox --------------------------------------------------------

inline uint4 philox_block(ulong seed, ulong offset, ulong index) {
    ulong counter = offset + index;
    uint c0 = (uint)counter, c1 = (uint)(counter >> 32), c2 = 0, c3 = 0;
    uint k0 = (uint)seed, k1 = (uint)(seed >> 32);
    for (int i = 0; i < 10; i++) {
        uint h0 = mul_hi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        uint h1 = mul_hi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (uint4)(c0, c1, c2, c3);
}
