// Cross-entropy of logits with class indices: one pass over a row computes its log-sum-exp; no probabilities
// are stored. GIVEN: the rows are log-probabilities, whose log-sum-exp is zero.

typedef Vec<T, LANES> V;
// For half types the hardware's exponential is exact enough: its argument has at most about ten bits.
__device__ inline float exponential(float x) { return sizeof(T) == 2 ? __expf(x) : expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline double logarithm(double x) { return log(x); }
#define LOWEST ((W)-INFINITY)
// Loads that a thread has in flight at a time.
#define AHEAD 4

struct Spec { const T* logits; const i64* target; const P* weight; u64 rows; u64 classes; i64 ignore_index; double smoothing; };

// The class of a row, or -1 if the row is ignored. Unlike an index, a negative class does not count from the end.
__device__ inline i64 class_of(const Spec& s, u64 row, Fault* fault) {
    i64 target = s.target[row];
    if (target == s.ignore_index) return -1;
    if (target >= 0 && target < (i64)s.classes) return target;
    note_fault(target, (i64)s.classes, fault);
    return -1;
}

__device__ inline W weight_of(const Spec& s, u64 c) { return s.weight ? convert<W>(s.weight[c]) : (W)1; }

extern "C" __global__ void __launch_bounds__(TPR < 128 ? 128 : TPR) cross_entropy(Spec s, W* loss, W* row_weight, W* lse, Fault* fault) {
    __shared__ W shared[32];
    u64 row = blockIdx.x * (u64)(blockDim.x / TPR) + threadIdx.x / TPR;
    u32 lane = threadIdx.x % TPR, vectors = GIVEN ? 0 : (u32)(s.classes / LANES);
    if (row >= s.rows) return;
    const T* x = s.logits + row * s.classes;
    W top = LOWEST, sum = 0, weighted = 0, weights = 0;
    for (u32 at = lane; at < vectors; at += AHEAD * TPR) {
        V some[AHEAD];
#pragma unroll
        for (int t = 0; t < AHEAD; t++) if (at + t * TPR < vectors) some[t] = ((const V*)x)[at + t * TPR];
        W higher = top, more = 0;
#pragma unroll
        for (int t = 0; t < AHEAD; t++) {
            if (at + t * TPR >= vectors) break;
#pragma unroll
            for (int l = 0; l < LANES; l++) {
                // The sum propagates NaN.
                W v = convert<W>(some[t].v[l]);
                higher = v > higher ? v : higher;
            }
        }
        W base = higher == LOWEST ? (W)0 : higher;
#pragma unroll
        for (int t = 0; t < AHEAD; t++) {
            if (at + t * TPR >= vectors) break;
#pragma unroll
            for (int l = 0; l < LANES; l++) {
                W v = convert<W>(some[t].v[l]);
                more += exponential(v - base);
                if (SMOOTH) {
                    W w = weight_of(s, (u64)(at + t * TPR) * LANES + l);
                    weighted += v * w;
                    weights += w;
                }
            }
        }
        sum = sum * exponential(top - base) + more;
        top = higher;
    }
    W all = group_reduce<Largest, TPR>(top, shared);
    sum = group_reduce<Sum, TPR>(top == LOWEST ? (W)0 : sum * exponential(top - all), shared);
    if (SMOOTH) {
        weighted = group_reduce<Sum, TPR>(weighted, shared);
        weights = group_reduce<Sum, TPR>(weights, shared);
    }
    if (lane != 0) return;
    W log_sum = GIVEN ? (W)0 : all + logarithm(sum), value = 0, counts = 0;
    i64 c = class_of(s, row, fault);
    if (c >= 0) {
        counts = weight_of(s, (u64)c);
        value = counts * (log_sum - convert<W>(x[c]));
        if (SMOOTH) value = (W)(1 - s.smoothing) * value + (W)(s.smoothing / (double)s.classes) * (log_sum * weights - weighted);
    }
    loss[row] = value;
    row_weight[row] = counts;
    lse[row] = log_sum;
}

extern "C" __global__ void __launch_bounds__(TPR < 128 ? 128 : TPR) cross_entropy_backward(Spec s, const W* lse, const W* dloss, T* dlogits, Fault* fault) {
    __shared__ W shared[32];
    u64 row = blockIdx.x * (u64)(blockDim.x / TPR) + threadIdx.x / TPR;
    u32 lane = threadIdx.x % TPR, vectors = (u32)(s.classes / LANES);
    if (row >= s.rows) return;
    const T* x = s.logits + row * s.classes;
    T* dx = dlogits + row * s.classes;
    W weights = (W)s.classes;
    if (SMOOTH && s.weight) {
        weights = 0;
        for (u64 c = lane; c < s.classes; c += TPR) weights += weight_of(s, c);
        weights = group_reduce<Sum, TPR>(weights, shared);
    }
    i64 c = class_of(s, row, fault);
    W incoming = c >= 0 ? dloss[row] : (W)0;
    W target = c >= 0 ? incoming * (W)(1 - s.smoothing) * weight_of(s, (u64)c) : (W)0;
    W uniform = incoming * (W)(s.smoothing / (double)s.classes);
    W probability = target + uniform * weights, log_sum = lse[row];
    for (u32 at = lane; at < vectors; at += TPR) {
        V one = {};
        if (!GIVEN) one = ((const V*)x)[at];
        i64 left = c - (i64)at * LANES;
        int hit = left >= 0 && left < LANES ? (int)left : -1;
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            W d = GIVEN ? (W)0 : exponential(convert<W>(one.v[l]) - log_sum) * probability;
            if (SMOOTH) d -= uniform * weight_of(s, (u64)at * LANES + l);
            if (l == hit) d -= target;
            one.v[l] = convert<T>(c >= 0 ? d : (W)0);
        }
        ((V*)dx)[at] = one;
    }
}
