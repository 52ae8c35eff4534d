// Random fills and dropout. Each element's words are numbered by its place in row-major order alone, so any launch draws the same numbers.
// A thread takes one block of four words: four elements of one word, or two of two (WORDS).

__device__ inline float uniform32(u32 word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }
__device__ inline double uniform64(u64 word) { return (double)(word >> 11) * (1.0 / 9007199254740992.0); }

#define PER_THREAD (4 / WORDS)

struct Numbers { double a, b, top; i64 low; u64 range; u32 below; };

#ifdef RANDOM
#define UNIFORM 0
#define NORMAL 1
#define INTEGERS 2
#define BERNOULLI 3

extern "C" __global__ void random(Nest<1> nest, Numbers n, Philox stream, OUT* out, u64 count) {
    u64 block = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    u64 first = block * PER_THREAD;
    if (first >= count) return;
    u32 w[4];
    philox_block(stream, block, w);
    OUT y[PER_THREAD];
#if WORDS == 1
#pragma unroll
    for (int i = 0; i < 4; i++) {
#if KIND == UNIFORM
        // Not fused: the CPU draws the same numbers.
        float v = __fadd_rn(__fmul_rn(uniform32(w[i]), (float)(n.b - n.a)), (float)n.a);
        y[i] = convert<OUT>(v > (float)n.top ? (float)n.top : v);
#elif KIND == NORMAL
        if (i % 2 == 0) {
            float radius = sqrtf(-2.0f * logf(1.0f - uniform32(w[i]))) * (float)n.b;
            float sine, cosine;
            sincospif(2.0f * uniform32(w[i + 1]), &sine, &cosine);
            y[i] = convert<OUT>(fmaf(radius, cosine, (float)n.a));
            y[i + 1] = convert<OUT>(fmaf(radius, sine, (float)n.a));
        }
#else
        y[i] = convert<OUT>((i32)(w[i] >> 8 < n.below));
#endif
    }
#else
    u64 a = w[0] | (u64)w[1] << 32, b = w[2] | (u64)w[3] << 32;
#if KIND == UNIFORM
    double u = __dadd_rn(n.a, __dmul_rn(uniform64(a), n.b - n.a)), v = __dadd_rn(n.a, __dmul_rn(uniform64(b), n.b - n.a));
    y[0] = convert<OUT>(u > n.top ? n.top : u);
    y[1] = convert<OUT>(v > n.top ? n.top : v);
#elif KIND == NORMAL
    double radius = sqrt(-2.0 * log(1.0 - uniform64(a))), sine, cosine;
    sincospi(2.0 * uniform64(b), &sine, &cosine);
    y[0] = convert<OUT>(n.a + n.b * radius * cosine);
    y[1] = convert<OUT>(n.a + n.b * radius * sine);
#elif KIND == INTEGERS
    y[0] = convert<OUT>((i64)((u64)n.low + __umul64hi(a, n.range)));
    y[1] = convert<OUT>((i64)((u64)n.low + __umul64hi(b, n.range)));
#else
    y[0] = convert<OUT>((i32)(uniform64(a) < n.a));
    y[1] = convert<OUT>((i32)(uniform64(b) < n.a));
#endif
#endif
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++) {
        if (first + i < count) {
            idx at[1];
            nest.offsets((idx)(first + i), at);
            out[at[0]] = y[i];
        }
    }
}
#endif

#ifdef DROPOUT
// DENSE: everything lies in row-major order, four neighbours are loaded at once.
extern "C" __global__ void dropout(Nest<2> nest, Philox stream, u32 below, double keep, const T* x, T* out, u64 count) {
    u64 block = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    u64 first = block * 4;
    if (first >= count) return;
    u32 w[4];
    philox_block(stream, block, w);
    WIDE_T divisor = (WIDE_T)keep;
#if DENSE
    if (first + 4 <= count) {
        Vec<T, 4> v = *(const Vec<T, 4>*)(x + first);
#pragma unroll
        for (int i = 0; i < 4; i++) v.v[i] = w[i] >> 8 < below ? convert<T>(0) : convert<T>(convert<WIDE_T>(v.v[i]) / divisor);
        *(Vec<T, 4>*)(out + first) = v;
        return;
    }
#endif
    for (int i = 0; i < 4 && first + i < count; i++) {
        idx at[2];
        nest.offsets((idx)(first + i), at);
        out[at[1]] = w[i] >> 8 < below ? convert<T>(0) : convert<T>(convert<WIDE_T>(x[at[0]]) / divisor);
    }
}
#endif
