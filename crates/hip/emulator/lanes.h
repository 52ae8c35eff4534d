// Environment of kernel texts on the emulated AMD GPU: the compiler's names, and lanes that meet through the emulator
// (machine.h). No headers of the system: a kernel is compiled in a fraction of a second.
#define __HIP__ 1
#define EMULATED 1
#define __device__
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline

#include "machine.h"

static Machine* machine;
// Only names that the emulator looks up are visible. Shared memory of a template would otherwise be one for all
// modules of the process, though its size differs from module to module: the loader gives such variables of the same
// name the same address.
#define EMULATOR_API extern "C" __attribute__((visibility("default")))
EMULATOR_API void emulator_attach(Machine* m) { machine = m; }
#define threadIdx machine->thread
#define blockIdx machine->block
#define blockDim machine->block_size
#define gridDim machine->grid_size

// Dynamic shared memory: kernels declare `extern T memory[]`.
asm(".pushsection .bss\n.globl memory\n.hidden memory\n.balign 1024\nmemory:\n.zero 65536\n.popsection\n");
extern "C" char emulator_memory[] __asm__("memory") __attribute__((visibility("hidden")));
EMULATOR_API char* emulator_shared() { return emulator_memory; }

// An entry point called with the addresses of its arguments, and their sizes.
template <int... I, class... A> static void emulator_call(void (*kernel)(A...), void** arguments, EmulatorNumbers<I...>) { kernel(*(A*)arguments[I]...); }
template <class... A> static void emulator_run(void (*kernel)(A...), void** arguments) {
    emulator_call(kernel, arguments, EmulatorNumbers<__integer_pack(sizeof...(A))...>());
}
template <class... A> static int emulator_sizes(void (*)(A...), unsigned long* sizes) {
    unsigned long all[] = {sizeof(A)..., 0};
    for (unsigned i = 0; i < sizeof...(A); i++) sizes[i] = all[i];
    return sizeof...(A);
}
#define EMULATOR_ENTRY(name)                                                              \
    EMULATOR_API void run_##name(void** arguments) { emulator_run(name, arguments); }       \
    EMULATOR_API int sizes_##name(unsigned long* sizes) { return emulator_sizes(name, sizes); }

// ---- lanes
// ---------------------------------------------------------------------------------------------------------------------

template <class A> static A emulator_exchange(int kind, A a, int lanes, int width, int line) {
    static_assert(sizeof(A) <= 8, "one word");
    union { unsigned long long word; A value; } in, out;
    in.word = 0;
    in.value = a;
    out.word = machine->exchange(kind, in.word, lanes, width, line);
    return out.value;
}
#define __shfl_xor(x, lanes, width) emulator_exchange(EXCHANGE_XOR, x, lanes, width, __LINE__)
#define __shfl_down(x, lanes, width) emulator_exchange(EXCHANGE_DOWN, x, lanes, width, __LINE__)
#define sync_lanes() ((void)machine->exchange(EXCHANGE_NOTHING, 0, 0, 64, __LINE__))
static inline void __syncthreads() { machine->barrier(0); }
static inline int __syncthreads_or(int yes) { return machine->barrier(yes); }

// ---- functions that the compiler knows
// --------------------------------------------------------------------------------------------

#define ONE(name)                      \
    extern "C" double name(double);    \
    extern "C" float name##f(float);   \
    static inline float name(float x) { return name##f(x); }
#define TWO(name)                              \
    extern "C" double name(double, double);    \
    extern "C" float name##f(float, float);    \
    static inline float name(float x, float y) { return name##f(x, y); }
ONE(exp) ONE(exp2) ONE(expm1) ONE(log) ONE(log2) ONE(log10) ONE(log1p) ONE(sqrt) ONE(cbrt) ONE(sin) ONE(cos) ONE(tan) ONE(asin) ONE(acos) ONE(atan)
ONE(sinh) ONE(cosh) ONE(tanh) ONE(asinh) ONE(acosh) ONE(atanh) ONE(erf) ONE(erfc) ONE(lgamma) ONE(tgamma) ONE(floor) ONE(ceil) ONE(trunc) ONE(rint)
ONE(round) ONE(fabs)
TWO(pow) TWO(atan2) TWO(fmod) TWO(hypot) TWO(copysign) TWO(fmax) TWO(fmin) TWO(nextafter)
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
static inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
extern "C" int abs(int);
static inline float abs(float x) { return __builtin_fabsf(x); }
static inline double abs(double x) { return __builtin_fabs(x); }
static inline long long abs(long long x) { return x < 0 ? -x : x; }
static inline double rsqrt(double x) { return 1 / __builtin_sqrt(x); }
static inline float rsqrt(float x) { return 1 / __builtin_sqrtf(x); }
static inline float rsqrtf(float x) { return rsqrt(x); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static inline float normcdff(float x) { return (float)normcdf((double)x); }
static inline float normcdf(float x) { return normcdff(x); }
// Newton's method from a guess by logarithms.
static inline double erfinv(double y) {
    if (!(y > -1 && y < 1)) return y == 1 ? __builtin_inf() : y == -1 ? -__builtin_inf() : __builtin_nan("");
    double l = log1p(-y * y), h = 4.33074675 + l / 2, x = copysign(sqrt(sqrt(h * h - l / 0.147) - h), y);
    // Near the ends the complement is exact where erf itself is not.
    for (int i = 0; i < 4; i++) {
        double off = y > 0.5 ? (1 - y) - erfc(x) : y < -0.5 ? erfc(-x) - (1 + y) : erf(x) - y;
        x -= off / (1.12837916709551257390 * exp(-x * x));
    }
    return x;
}
static inline float erfinvf(float y) { return (float)erfinv((double)y); }
static inline float erfinv(float y) { return erfinvf(y); }
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)
#define MIN_AND_MAX(A) static inline A min(A a, A b) { return b < a ? b : a; } static inline A max(A a, A b) { return a < b ? b : a; }
MIN_AND_MAX(int) MIN_AND_MAX(unsigned) MIN_AND_MAX(long long) MIN_AND_MAX(unsigned long long) MIN_AND_MAX(long) MIN_AND_MAX(unsigned long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
template <class To, class From> static To emulator_bits(From x) { To y; __builtin_memcpy(&y, &x, sizeof y); return y; }
static inline double __longlong_as_double(long long x) { return emulator_bits<double>(x); }
static inline long long __double_as_longlong(double x) { return emulator_bits<long long>(x); }
static inline float __uint_as_float(unsigned x) { return emulator_bits<float>(x); }
static inline float __int_as_float(int x) { return emulator_bits<float>(x); }
static inline unsigned __float_as_uint(float x) { return emulator_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return emulator_bits<int>(x); }
static inline unsigned atomicCAS(unsigned* at, unsigned old, unsigned now) { unsigned was = *at; if (was == old) *at = now; return was; }
template <class A> static A atomicAdd(A* at, A more) { A was = *at; *at = was + more; return was; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline void __threadfence_system() { __sync_synchronize(); }
extern "C" int usleep(unsigned);
static inline void __nanosleep(unsigned) { usleep(20); }
