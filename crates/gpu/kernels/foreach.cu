// Kernels over lists of tensors in few launches. A launch takes a table of entries by value; a block finds its entry by
// the entries' first blocks.

#define PIECE 16384

#ifdef UPDATE
#define ENTRIES 24
// The numbers of a step. f: the rule's factors, as UpdateRule::factors() orders them.
struct Factors { double sign, decay, shrink, f[8]; };
// The update of one parameter; in a recorded step its numbers are at `live` and change at each replay.
struct Entry { T* param; const T* grad; T* state[3]; u64 count; u64 first; const Factors* live; Factors own; };
struct Table { u32 entries; u32 pad; Entry e[ENTRIES]; };

// STATES: a bit per state that exists.
#define HAS(i) (STATES >> i & 1)

// The rule's row: RULE_STATES are the arguments of its states, RULE_FACTORS declares its factors, RULE is its formula.
namespace rules {
#define let const W
__device__ inline float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
__device__ inline double fma(double a, double b, double c) { return ::fma(a, b, c); }
__device__ inline float sqrt(float x) { return ::sqrtf(x); }
__device__ inline double sqrt(double x) { return ::sqrt(x); }
__device__ inline W max(W a, W b) { return Largest::merge(a, b); }
__device__ inline W abs(W x) { return x < 0 ? -x : x; }
__device__ inline W choose(bool present, W a, W b) { return present ? a : b; }

__device__ inline void move(W& p, W g, RULE_STATES, const Factors& e) {
    RULE_FACTORS
    RULE
}
#undef let
}

__device__ inline void step(W& p, W g, W& a, W& b, W& c, const Factors& e) {
    p *= (W)e.shrink;
    // Without weight decay the parameter is not read: infinity times zero would be NaN.
    if (e.decay != 0) g += (W)e.decay * p;
    rules::move(p, g, a, b, c, e);
}

// G: the dtype of the factor of the gradients, if it is a tensor. The kernel does nothing if `found_inf` is
// given and not zero.
extern "C" __global__ void __launch_bounds__(256) update(Table table, const G* factor, double number, const float* found_inf) {
    if (found_inf && *found_inf != 0) return;
    u32 k = 0;
    while (k + 1 < table.entries && table.e[k + 1].first <= blockIdx.x) k++;
    const Entry& e = table.e[k];
    const Factors n = e.live ? *e.live : e.own;
    W scale = (factor ? convert<W>(*factor) : (W)number) * (W)n.sign;
    u64 start = (blockIdx.x - e.first) * (u64)PIECE, end = start + PIECE < e.count ? start + PIECE : e.count;
    typedef Vec<T, LANES> V;
#if LANES > 1
    for (u64 i = start + threadIdx.x * LANES; i < end; i += 256 * LANES) {
        if (i + LANES <= end) {
            V p = *(V*)(e.param + i), g = *(const V*)(e.grad + i), s[3];
#pragma unroll
            for (int k = 0; k < 3; k++) if (HAS(k)) s[k] = *(V*)(e.state[k] + i);
#pragma unroll
            for (int l = 0; l < LANES; l++) {
                W w = convert<W>(p.v[l]), st[3] = {0, 0, 0};
#pragma unroll
                for (int k = 0; k < 3; k++) if (HAS(k)) st[k] = convert<W>(s[k].v[l]);
                step(w, convert<W>(g.v[l]) * scale, st[0], st[1], st[2], n);
                p.v[l] = convert<T>(w);
#pragma unroll
                for (int k = 0; k < 3; k++) if (HAS(k)) s[k].v[l] = convert<T>(st[k]);
            }
            *(V*)(e.param + i) = p;
#pragma unroll
            for (int k = 0; k < 3; k++) if (HAS(k)) *(V*)(e.state[k] + i) = s[k];
            continue;
        }
        for (u64 j = i; j < end; j++) {
#else
    {
        for (u64 j = start + threadIdx.x; j < end; j += 256) {
#endif
            W w = convert<W>(e.param[j]), st[3] = {0, 0, 0};
#pragma unroll
            for (int k = 0; k < 3; k++) if (HAS(k)) st[k] = convert<W>(e.state[k][j]);
            step(w, convert<W>(e.grad[j]) * scale, st[0], st[1], st[2], n);
            e.param[j] = convert<T>(w);
#pragma unroll
            for (int k = 0; k < 3; k++) if (HAS(k)) e.state[k][j] = convert<T>(st[k]);
        }
    }
}
#endif

#if defined(NORM) || defined(SCALE)
#define ENTRIES 128
struct Entry { T* x; u64 count; u64 first; };
struct Table { u32 entries; u32 pad; Entry e[ENTRIES]; };

// Applies `each` to every `value` of a piece and `after` to every load (`some`, from `place`), 16 bytes at a time if
// aligned.
#define EACH_PIECE(each, after)                                                                \
    {                                                                                           \
        typedef Vec<T, 16 / sizeof(T)> Wide;                                                    \
        u64 rest = start;                                                                       \
        if ((u64)e.x % 16 == 0) {                                                               \
            u64 whole = (end - start) / (16 / sizeof(T));                                       \
            rest = start + whole * (16 / sizeof(T));                                            \
            _Pragma("unroll 4") for (u64 i = threadIdx.x; i < whole; i += 256) {                \
                Wide* place = (Wide*)(e.x + start) + i;                                         \
                Wide some = *place;                                                             \
                _Pragma("unroll") for (int l = 0; l < 16 / (int)sizeof(T); l++) {               \
                    T& value = some.v[l];                                                       \
                    each                                                                        \
                }                                                                               \
                after                                                                           \
            }                                                                                   \
        }                                                                                       \
        for (u64 i = rest + threadIdx.x; i < end; i += 256) {                                   \
            T* place = e.x + i;                                                                 \
            T some = *place;                                                                    \
            T& value = some;                                                                    \
            each                                                                                \
            after                                                                               \
        }                                                                                       \
    }
#endif


#if defined(NORM) || defined(SCALE) || defined(COPY)
// The entry of this block.
template <class Table> __device__ inline auto entry(const Table& table) -> decltype(table.e[0]) {
    u32 low = 0, high = table.entries;
    while (low + 1 < high) {
        u32 half = (low + high) / 2;
        if (table.e[half].first <= blockIdx.x) low = half;
        else high = half;
    }
    return table.e[low];
}
#endif

#if defined(NORM) || defined(NORM_FINISH)
enum { ZERO_NORM = 8, ONE_NORM, TWO_NORM, INF_NORM, NEG_INF_NORM, P_NORM };
struct Join {
    template <class A> static __device__ A merge(A a, A b) {
        if (OP_CODE == INF_NORM) return (a >= b || a != a) ? a : b;
        if (OP_CODE == NEG_INF_NORM) return (a <= b || a != a) ? a : b;
        return a + b;
    }
};
#define NOTHING (OP_CODE == NEG_INF_NORM ? (double)INFINITY : 0.0)
#endif

#ifdef NORM
__device__ inline float power(float x, float p) { return powf(x, p); }
__device__ inline double power(double x, double p) { return pow(x, p); }

// partial[first + block] = the joined terms of one piece.
extern "C" __global__ void __launch_bounds__(256) foreach_norm(Table table, double p, double* partial) {
    __shared__ W shared[32];
    const Entry& e = entry(table);
    u64 start = (blockIdx.x - e.first) * (u64)PIECE, end = start + PIECE < e.count ? start + PIECE : e.count;
    W acc = (W)NOTHING;
    EACH_PIECE({
        W x = convert<W>(value);
        W size = x < 0 ? -x : x;
        if (OP_CODE == ZERO_NORM) x = x != 0 ? (W)1 : (W)0;
        else if (OP_CODE == TWO_NORM) x = x * x;
        else if (OP_CODE == P_NORM) x = power(size, (W)p);
        else x = size;
        acc = Join::merge(acc, x);
    }, )
    acc = group_reduce<Join, 256>(acc, shared);
    if (threadIdx.x == 0) partial[blockIdx.x] = (double)acc;
}
#endif

#ifdef NORM_FINISH
extern "C" __global__ void __launch_bounds__(256) foreach_norm_finish(const double* partial, u64 count, double p, OUT* out) {
    __shared__ double shared[32];
    double acc = NOTHING;
    for (u64 i = threadIdx.x; i < count; i += 256) acc = Join::merge(acc, partial[i]);
    acc = group_reduce<Join, 256>(acc, shared);
    if (OP_CODE == TWO_NORM) acc = sqrt(acc);
    if (OP_CODE == P_NORM) acc = pow(acc, 1 / p);
    if (threadIdx.x == 0) *out = convert<OUT>(acc);
}
#endif

#ifdef SCALE
// WRITES: whether there is a factor.
extern "C" __global__ void __launch_bounds__(256) foreach_scale(Table table, const G* factor, double number, float* found_inf) {
    const Entry& e = entry(table);
    W scale = factor ? convert<W>(*factor) : (W)number;
    // Gradients that need no clipping are not written.
    if (WRITES && !found_inf && scale == 1) return;
    u64 start = (blockIdx.x - e.first) * (u64)PIECE, end = start + PIECE < e.count ? start + PIECE : e.count;
    bool found = false;
    EACH_PIECE({
        W x = convert<W>(value);
        found |= x - x != 0;
        value = convert<T>(x * scale);
    }, if (WRITES) *place = some;)
    if (found && found_inf) *found_inf = 1.0f;
}
#endif

#ifdef COPY
#define ENTRIES 80
// The destination has rows of `row` elements, `apart` elements from each other.
struct Entry { const T* from; OUT* to; u64 count; u64 first; u64 row; u64 apart; };
struct Table { u32 entries; u32 piece; Entry e[ENTRIES]; };

// Where element i goes.
__device__ inline OUT* destination(const Entry& e, u64 i) {
    if (e.row == e.count) return e.to + i;
    u64 row = quotient(i, e.row);
    return e.to + row * e.apart + (i - row * e.row);
}

extern "C" __global__ void __launch_bounds__(256) foreach_copy(Table table) {
    const Entry& e = entry(table);
    u64 start = (blockIdx.x - e.first) * (u64)table.piece, end = start + table.piece < e.count ? start + table.piece : e.count;
    typedef Vec<T, 4> From;
    typedef Vec<OUT, 4> To;
    bool whole = e.row == e.count || (e.row | e.apart) % 4 == 0;
    if (whole && (u64)e.from % sizeof(From) == 0 && (u64)e.to % sizeof(To) == 0) {
#pragma unroll 4
        for (u64 i = start + threadIdx.x * 4; i + 4 <= end; i += 1024) {
            From some = *(const From*)(e.from + i);
            To out;
#pragma unroll
            for (int l = 0; l < 4; l++) out.v[l] = convert<OUT>(some.v[l]);
            *(To*)destination(e, i) = out;
        }
        start += (end - start) / 4 * 4;
    }
    for (u64 i = start + threadIdx.x; i < end; i += 256) *destination(e, i) = convert<OUT>(e.from[i]);
}
#endif
