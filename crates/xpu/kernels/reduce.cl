// Reductions over any dimensions of any layout.
//
// ITEMS_IN work items of a group split an output's elements, and the launch's second dimension splits them into pieces.
// A second kernel joins the partial results of pieces in order, so results do not depend on timing. A work item folds
// WIDTH neighbours at a time: outputs (ACROSS) or elements. OP_CODE is the reduction; W is the accumulator type; T and
// OUT are the dtypes; P is the type of parameters.

#define OP_MEAN 1
#define OP_PROD 2
#define OP_MAX 3
#define OP_MIN 4
#define OP_ANY 5
#define OP_ALL 6
#define OP_VAR 7
#define OP_NORM0 8
#define OP_NORM1 9
#define OP_NORM2 10
#define OP_NORM_INF 11
#define OP_NORM_NEG_INF 12
#define OP_NORM_P 13
#define OP_LSE 14
#define OP_SUMSQUARES 15
#define OP_COUNT 16
#define OP_ARGMAX 17
#define OP_ARGMIN 18

#define KEEPS_LARGEST (OP_CODE == OP_MAX || OP_CODE == OP_NORM_INF || OP_CODE == OP_ARGMAX)
#define KEEPS_SMALLEST (OP_CODE == OP_MIN || OP_CODE == OP_NORM_NEG_INF || OP_CODE == OP_ARGMIN)
#define IS_ARG (OP_CODE >= 17)

#if W_IS_LONG
#define LOWEST LONG_MIN
#define HIGHEST LONG_MAX
#else
#define LOWEST ((W)-INFINITY)
#define HIGHEST ((W)INFINITY)
#endif

#if OP_CODE == OP_VAR
typedef struct { W n, mean, m2; } Acc;
inline Acc start(void) { Acc a = {0, 0, 0}; return a; }
inline Acc add(Acc a, W x, long i, P p) {
    a.n += 1;
    W d = x - a.mean;
    a.mean += d / a.n;
    a.m2 += d * (x - a.mean);
    return a;
}
inline Acc merge(Acc a, Acc b, P p) {
    if (b.n == 0) return a;
    W all = a.n + b.n, d = b.mean - a.mean;
    a.mean += d * (b.n / all);
    a.m2 += b.m2 + d * d * (a.n * (b.n / all));
    a.n = all;
    return a;
}
#elif OP_CODE == OP_LSE
typedef struct { W top, sum; } Acc;
inline Acc start(void) { Acc a = {LOWEST, 0}; return a; }
inline Acc join(Acc a, W t, W s) {
    if (t == a.top) {
        a.sum += s;
    } else if (t > a.top || t != t) {
        a.sum = a.sum * exp(a.top - t) + s;
        a.top = t;
    } else {
        a.sum += s * exp(t - a.top);
    }
    return a;
}
inline Acc add(Acc a, W x, long i, P p) { return join(a, x, 1); }
inline Acc merge(Acc a, Acc b, P p) { return b.sum != 0 ? join(a, b.top, b.sum) : a; }
#elif IS_ARG
typedef struct { W value; long index; } Acc;
inline Acc start(void) { Acc a = {0, -1}; return a; }
inline Acc add(Acc a, W x, long i, P p) {
    int better = a.index < 0 || (KEEPS_LARGEST ? x > a.value : x < a.value) || (x != x && a.value == a.value);
    int same = x == a.value || (x != x && a.value != a.value);
    if (better || (same && i < a.index)) {
        a.value = x;
        a.index = i;
    }
    return a;
}
inline Acc merge(Acc a, Acc b, P p) { return b.index >= 0 ? add(a, b.value, b.index, p) : a; }
#else
typedef struct { W a; } Acc;
inline Acc start(void) {
    Acc a = {OP_CODE == OP_PROD || OP_CODE == OP_ALL ? (W)1 : KEEPS_LARGEST ? LOWEST : KEEPS_SMALLEST ? HIGHEST : (W)0};
    return a;
}
inline Acc join(Acc a, W x) {
    if (KEEPS_LARGEST) a.a = (a.a >= x || a.a != a.a) ? a.a : x;
    else if (KEEPS_SMALLEST) a.a = (a.a <= x || a.a != a.a) ? a.a : x;
    else if (OP_CODE == OP_PROD) a.a *= x;
    else if (OP_CODE == OP_ANY) a.a = a.a != 0 || x != 0 ? (W)1 : (W)0;
    else if (OP_CODE == OP_ALL) a.a = a.a != 0 && x != 0 ? (W)1 : (W)0;
    else a.a += x;
    return a;
}
inline Acc add(Acc a, W x, long i, P p) {
#if OP_CODE == OP_NORM1 || OP_CODE == OP_NORM_INF || OP_CODE == OP_NORM_NEG_INF
    x = fabs(x);
#elif OP_CODE == OP_NORM2 || OP_CODE == OP_SUMSQUARES
    x = x * x;
#elif OP_CODE == OP_NORM0
    x = x != 0 ? (W)1 : (W)0;
#elif OP_CODE == OP_NORM_P
    x = pow(fabs(x), p);
#endif
    return join(a, x);
}
inline Acc merge(Acc a, Acc b, P p) { return join(a, b.a); }
#endif

// `second`: the divisor of a mean or a variance, the inverse of a norm's order.
inline W finish(Acc acc, P second) {
#if OP_CODE == OP_VAR
    return (acc.m2 < 0 ? (W)0 : acc.m2) / second;
#elif OP_CODE == OP_LSE
    return acc.top + log(acc.sum);
#elif IS_ARG
    return acc.value;
#elif OP_CODE == OP_MEAN
    return acc.a / second;
#elif OP_CODE == OP_NORM2
    return sqrt(acc.a);
#elif OP_CODE == OP_NORM_P
    return pow(acc.a, second);
#else
    return acc.a;
#endif
}

typedef NEST(2) Kept;
typedef NEST(1) Reduced;

#ifdef FOLD
// Maximum elements per accumulator: longer sums lose digits.
#define SUMMED 256
// Elements of an output that a group's work items take per iteration.
#define STEP ((ulong)ITEMS_IN * (ACROSS ? 1 : WIDTH))
#define ADD(acc, place, number) add(acc, ELEMENT(LOAD_T(base, place)), (long)(number), first_param)
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void reduce(const Kept kept, const Reduced reduced, const __global T* x, __global OUT* out, __global long* indices,
            __global Acc* partial, const ulong outputs, const ulong length, const ulong piece, const P first_param,
            const P second_param) {
    const uint in = get_local_id(0) % ITEMS_IN, o = get_local_id(0) / ITEMS_IN;
    const ulong output = (get_group_id(0) * (ulong)(GROUP / ITEMS_IN) + o) * (ACROSS ? WIDTH : 1);
    const ulong from = get_group_id(1) * piece;
    const ulong to = from + piece < length ? from + piece : length;
    Acc acc[WIDTH];
    for (int v = 0; v < WIDTH; v++) acc[v] = start();
    if (output < outputs) {
        long at[2] = {0, 0};
        NEST_OFFSETS(kept, 2, output, 0, at);
        const __global T* base = x + at[0];
        for (ulong begin = from; begin < to; begin += SUMMED * STEP) {
            const ulong end = begin + SUMMED * STEP < to ? begin + SUMMED * STEP : to;
            Acc some[WIDTH];
            for (int v = 0; v < WIDTH; v++) some[v] = start();
#if ACROSS || WIDTH == 1
            for (ulong e = begin + in; e < end; e += ITEMS_IN) {
                long place[1] = {0};
#if ONE_LOOP
                place[0] = (long)e * reduced.strides[0][0];
#else
                NEST_OFFSETS(reduced, 1, e, 0, place);
#endif
                for (int v = 0; v < WIDTH; v++) some[v] = ADD(some[v], place[0] + v, e);
            }
#else
            // A single contiguous loop.
            ulong e = begin + in * (ulong)WIDTH;
            for (; e + WIDTH <= end; e += STEP) {
                for (int v = 0; v < WIDTH; v++) some[v] = ADD(some[v], e + v, e + v);
            }
            for (int v = 0; v < WIDTH; v++) {
                if (e + v < end) some[v] = ADD(some[v], e + v, e + v);
            }
#endif
            for (int v = 0; v < WIDTH; v++) acc[v] = merge(acc[v], some[v], first_param);
        }
#if !ACROSS
        for (int v = 1; v < WIDTH; v++) acc[0] = merge(acc[0], acc[v], first_param);
#endif
    }
#if ITEMS_IN > 1
    __local Acc shared[GROUP];
    shared[get_local_id(0)] = acc[0];
    for (uint half_size = ITEMS_IN / 2; half_size > 0; half_size /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint own = get_local_id(0);
        if (in < half_size) shared[own] = merge(shared[own], shared[own + half_size], first_param);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    acc[0] = shared[get_local_id(0)];
#endif
    if (in != 0 || output >= outputs) return;
    for (int v = 0; v < (ACROSS ? WIDTH : 1); v++) {
        if (get_num_groups(1) > 1) {
            partial[get_group_id(1) * outputs + output + v] = acc[v];
        } else {
            long place[2] = {0, 0};
            NEST_OFFSETS(kept, 2, output + v, 0, place);
            STORE_OUT(out, place[1], RESULT(finish(acc[v], second_param)));
#if IS_ARG
            indices[place[1]] = acc[v].index;
#endif
        }
    }
}
#endif

#ifdef JOIN
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void reduce_join(const Kept kept, __global OUT* out, __global long* indices, const __global Acc* partial,
                 const ulong outputs, const ulong pieces, const P first_param, const P second_param) {
    const ulong output = get_global_id(0);
    if (output >= outputs) return;
    Acc acc = partial[output];
    for (ulong i = 1; i < pieces; i++) acc = merge(acc, partial[i * outputs + output], first_param);
    long at[2] = {0, 0};
    NEST_OFFSETS(kept, 2, output, 0, at);
    STORE_OUT(out, at[1], RESULT(finish(acc, second_param)));
#if IS_ARG
    indices[at[1]] = acc.index;
#endif
}
#endif
