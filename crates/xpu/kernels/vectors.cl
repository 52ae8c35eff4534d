// Vectors of LANES elements in the arithmetic type R (float or double; R_KIND 0, 1). A CPU gets whole registers, a GPU
// single elements (LANES 1).
//
// PARTS(T) makes load_part_T and store_part_T of a dtype T (see Defines::dtype and Defines::vector): the elements
// beyond a row's end are not touched.

#ifdef LANES
#define JOIN_AGAIN(a, b) a##b
#define JOIN(a, b) JOIN_AGAIN(a, b)

#if LANES == 1
typedef R V;
typedef uint VU;
#define READ_V(p) (*(p))
#define READ_GLOBAL(p) (*(p))
#define WRITE_GLOBAL(v, p) (*(p) = (v))
#define READ_OWN(p) (*(p))
#define WRITE_OWN(v, p) (*(p) = (v))
#define WRITE_V(v, p) (*(p) = (v))
#define AS_V(x) as_float(x)
#define AS_VU(x) as_uint(x)
#define TO_VU(x) ((uint)(x))
#define TO_VH(x) ((ushort)(x))
#define CHOOSE(condition, a, b) ((condition) ? (a) : (b))
inline R sum_of(V v) { return v; }
inline R largest_of(V v) { return v; }
#else
typedef JOIN(R, LANES) V;
typedef JOIN(uint, LANES) VU;
// A vector with the alignment of its elements: one load, whereas vload may become several.
#if R_KIND == 1
typedef V LooseV __attribute__((aligned(8)));
#else
typedef V LooseV __attribute__((aligned(4)));
#endif
#define READ_GLOBAL(p) (*(const __global LooseV*)(p))
#define WRITE_GLOBAL(v, p) (*(__global LooseV*)(p) = (v))
// The same for private memory.
#define READ_OWN(p) (*(const LooseV*)(p))
#define WRITE_OWN(v, p) (*(LooseV*)(p) = (v))
#define READ_V(p) JOIN(vload, LANES)(0, p)
#define WRITE_V(v, p) JOIN(vstore, LANES)(v, 0, p)
#define AS_V(x) JOIN(as_float, LANES)(x)
#define AS_VU(x) JOIN(as_uint, LANES)(x)
#define TO_VU(x) JOIN(convert_uint, LANES)(x)
#define TO_VH(x) JOIN(convert_ushort, LANES)(x)
// The condition is a comparison of vectors like a and b.
#define CHOOSE(condition, a, b) select((b), (a), (condition))
#if LANES == 16
#define HALVES(op) const JOIN(R, 8) half_ = op(v.lo, v.hi); const JOIN(R, 4) four_ = op(half_.lo, half_.hi);
#elif LANES == 8
#define HALVES(op) const JOIN(R, 4) four_ = op(v.lo, v.hi);
#else
#define HALVES(op) const JOIN(R, 4) four_ = v;
#endif
#define PLUS(a, b) ((a) + (b))
inline R sum_of(V v) {
    HALVES(PLUS)
    return (four_.x + four_.z) + (four_.y + four_.w);
}
inline R largest_of(V v) {
    HALVES(fmax)
    return fmax(fmax(four_.x, four_.z), fmax(four_.y, four_.w));
}
#endif

#if R_KIND == 1
inline V vload_f64(const __global double* p, size_t i) { return READ_GLOBAL(p + i); }
inline void vstore_f64(__global double* p, size_t i, V v) { WRITE_GLOBAL(v, p + i); }
#else
inline V vload_f32(const __global float* p, size_t i) { return READ_GLOBAL(p + i); }
inline void vstore_f32(__global float* p, size_t i, V v) { WRITE_GLOBAL(v, p + i); }
inline V vload_bf16(const __global ushort* p, size_t i) { return AS_V(TO_VU(READ_V(p + i)) << 16); }
inline void vstore_bf16(__global ushort* p, size_t i, V v) {
    const VU bits = AS_VU(v), rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16, quiet = bits >> 16 | 0x40u;
    WRITE_V(TO_VH(CHOOSE((bits & 0x7fffffffu) > 0x7f800000u, quiet, rounded)), p + i);
}
// As f16_to_float and float_to_f16.
inline V vload_f16(const __global ushort* p, size_t i) {
    const VU bits = TO_VU(READ_V(p + i)), magnitude = (bits & 0x7fffu) << 13;
    const VU value = AS_VU(AS_V(magnitude) * 0x1p112f);
    return AS_V(CHOOSE(magnitude >= 0x0f800000u, magnitude | 0x7f800000u, value) | (bits & 0x8000u) << 16);
}
inline void vstore_f16(__global ushort* p, size_t i, V v) {
    const VU bits = AS_VU(v), magnitude = bits & 0x7fffffffu;
    const VU normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13,
        tiny = AS_VU(AS_V(magnitude) + 0.5f) - 0x3f000000u;
    VU half_bits = CHOOSE(magnitude < 0x38800000u, tiny, normal);
    half_bits = CHOOSE(magnitude >= 0x477ff000u, (VU)0x7c00u, half_bits);
    half_bits = CHOOSE(magnitude > 0x7f800000u, (VU)0x7e00u, half_bits);
    WRITE_V(TO_VH((bits >> 16 & 0x8000u) | half_bits), p + i);
}
#endif

#if LANES == 1
#define PARTS(T)                                                                                                     \
    inline V load_part_##T(const __global T* p, size_t i, size_t n, R pad) { return i < n ? VLOAD_##T(p, i) : pad; } \
    inline void store_part_##T(__global T* p, size_t i, size_t n, V v) {                                             \
        if (i < n) VSTORE_##T(p, i, v);                                                                              \
    }
#else
#define PARTS(T)                                                                           \
    inline V load_part_##T(const __global T* p, size_t i, size_t n, R pad) {               \
        if (i + LANES <= n) return VLOAD_##T(p, i);                                        \
        R some[LANES];                                                                     \
        for (int l = 0; l < LANES; l++) some[l] = i + l < n ? (R)LOAD_##T(p, i + l) : pad; \
        return READ_V(some);                                                               \
    }                                                                                      \
    inline void store_part_##T(__global T* p, size_t i, size_t n, V v) {                   \
        if (i + LANES <= n) {                                                              \
            VSTORE_##T(p, i, v);                                                           \
            return;                                                                        \
        }                                                                                  \
        R some[LANES];                                                                     \
        WRITE_V(v, some);                                                                  \
        for (int l = 0; l < LANES && i + l < n; l++) STORE_##T(p, i + l, some[l]);         \
    }
#endif

// exp(x) for x <= 0; subnormal results are zero.
#if R_KIND == 1
#define EXP_DOWN(x) exp(x)
#else
inline V exp_down(V x) {
    // Adding 1.5 * 2^23 rounds to an integer (rint takes about twenty instructions); 127 is the exponent's offset.
    const V shifted = fma(x, (V)1.44269504f, (V)12583039.0f), n = shifted - 12583039.0f;
    const V r = fma(n, (V)-1.42860677e-6f, fma(n, (V)-0.693145752f, x));
    V y = fma((V)1.38888889e-3f, r, (V)8.33333333e-3f);
    y = fma(y, r, (V)4.16666667e-2f);
    y = fma(y, r, (V)1.66666667e-1f);
    y = fma(y, r, (V)0.5f);
    y = fma(y, r, (V)1.0f);
    y = fma(y, r, (V)1.0f);
    return CHOOSE(x < -87.0f, (V)0.0f, y * AS_V(AS_VU(shifted) << 23));
}
#define EXP_DOWN(x) exp_down(x)
#endif
#endif
