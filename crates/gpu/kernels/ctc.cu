// Connectionist temporal classification: the probability of a label sequence over all its alignments. A state is a
// label or a blank between labels: its class, the next state of the same class or -1, and whether it is the first of
// its class, never so for blanks. T is float or double; logarithms of zero are -INFINITY.

struct State { i32 label; i32 next; i32 first; };
struct Length { i32 steps; i32 states; };

__device__ inline T log_sum(T a, T b, T c) {
    T most = a > b ? a : b;
    most = most > c ? most : c;
    if (most == (T)-INFINITY) return most;
    return most + log(exp(a - most) + exp(b - most) + exp(c - most));
}

// Whether a path may go from state s to s + 2 and leave out the blank between.
__device__ inline bool skips(const State* states, i64 count, i64 s) { return s >= 0 && s + 2 < count && states[s + 2].label != states[s].label; }

#ifdef FORWARD
// alphas[b, t, s]: log-probability of all paths that have come to state s at step t. A block takes a sequence.
extern "C" __global__ void __launch_bounds__(256) ctc_alphas(const T* log_probs, const State* all, const Length* lengths, T* alphas, T* loss, u64 steps, u64 batch, u64 classes, u64 most) {
    u64 b = blockIdx.x;
    const State* states = all + b * most;
    i64 count = lengths[b].states, length = lengths[b].steps;
    T* row = alphas + b * steps * most;
    const T* from = log_probs + b * classes;
    for (i64 t = 0; t < length; t++, row += most, from += batch * classes) {
        for (i64 s = threadIdx.x; s < count; s += 256) {
            T sum;
            if (t == 0) sum = s < 2 ? (T)0 : (T)-INFINITY;
            else {
                const T* before = row - most;
                sum = log_sum(before[s], s > 0 ? before[s - 1] : (T)-INFINITY, skips(states, count, s - 2) ? before[s - 2] : (T)-INFINITY);
            }
            row[s] = sum + from[states[s].label];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        T likelihood;
        // Nothing spells the empty target only.
        if (length == 0) likelihood = count == 1 ? (T)0 : (T)-INFINITY;
        else likelihood = log_sum(row[count - 1 - (i64)most], count > 1 ? row[count - 2 - (i64)most] : (T)-INFINITY, (T)-INFINITY);
        loss[b] = -likelihood;
    }
}
#endif

#ifdef BACKWARD
// betas[b, t, s]: log-probability of all paths that continue from state s, step t included.
extern "C" __global__ void __launch_bounds__(256) ctc_betas(const T* log_probs, const State* all, const Length* lengths, T* betas, u64 steps, u64 batch, u64 classes, u64 most) {
    u64 b = blockIdx.x;
    const State* states = all + b * most;
    i64 count = lengths[b].states, length = lengths[b].steps;
    for (i64 t = length - 1; t >= 0; t--) {
        T* row = betas + (b * steps + (u64)t) * most;
        const T* from = log_probs + ((u64)t * batch + b) * classes;
        const T* next = row + most;
        for (i64 s = threadIdx.x; s < count; s += 256) {
            T sum;
            if (t + 1 == length) sum = s + 2 >= count ? (T)0 : (T)-INFINITY;
            else sum = log_sum(next[s], s + 1 < count ? next[s + 1] : (T)-INFINITY, skips(states, count, s) ? next[s + 2] : (T)-INFINITY);
            row[s] = sum + from[states[s].label];
        }
        __syncthreads();
    }
}

// The gradient of a step of a sequence; a block takes one. Alpha and beta both count the step's own probability.
extern "C" __global__ void __launch_bounds__(128) ctc_gradient(const T* log_probs, const State* all, const Length* lengths, const T* alphas, const T* betas, const T* loss, const T* dloss, T* dx, u64 steps, u64 batch, u64 classes, u64 most, u64 blank, u32 zero_infinity) {
    __shared__ T parts[4];
    u64 t = blockIdx.x / batch, b = blockIdx.x % batch;
    const State* states = all + b * most;
    i64 count = lengths[b].states;
    const T *from = log_probs + (t * batch + b) * classes, *alpha = alphas + (b * steps + t) * most, *beta = betas + (b * steps + t) * most;
    T* to = dx + (t * batch + b) * classes;
    T cost = loss[b], dy = dloss[b];
    bool nothing = (i64)t >= lengths[b].steps || (zero_infinity && cost == (T)INFINITY);
    for (u64 c = threadIdx.x; c < classes; c += 128) to[c] = nothing ? (T)0 : dy * exp(from[c]);
    if (nothing) return;
    // Classes are written by one thread each from here on.
    __syncthreads();
    T most_blank = (T)-INFINITY;
    for (i64 s = threadIdx.x; s < count; s += 128) {
        T through = alpha[s] + beta[s];
        if (states[s].label == (i32)blank && through > most_blank) most_blank = through;
    }
    most_blank = group_reduce<Largest, 128>(most_blank, parts);
    T sum = 0;
    if (most_blank != (T)-INFINITY)
        for (i64 s = threadIdx.x; s < count; s += 128)
            if (states[s].label == (i32)blank) sum += exp(alpha[s] + beta[s] - most_blank);
    sum = group_reduce<Sum, 128>(sum, parts);
    if (threadIdx.x == 0) to[blank] -= dy * exp(most_blank + (T)log(sum) + cost - from[blank]);
    for (i64 s = 1 + 2 * (i64)threadIdx.x; s < count; s += 256) {
        if (!states[s].first) continue;
        T through = (T)-INFINITY;
        for (i64 n = s; n >= 0; n = states[n].next) through = log_sum(through, alpha[n] + beta[n], (T)-INFINITY);
        u64 c = (u64)states[s].label;
        to[c] -= dy * exp(through + cost - from[c]);
    }
}
#endif
