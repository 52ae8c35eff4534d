// Softmax, row norms and cross-entropy of contiguous rows, in few passes over a row. T: the dtype of elements; S: that
// of statistics, which is the arithmetic type R.

PARTS(T)
PARTS(S)

#ifdef SOFTMAX
// LOG: log-softmax.
#define EXPONENTIAL(v) EXP_DOWN((v) - top)
__kernel GROUP_OF_ROW void softmax(const __global T* all, __global T* out, const ulong n, const ulong rows,
                                   const ulong each) {
    SHARED
#if !LOG && ITEMS == 1
    // If the output has the arithmetic's precision, it holds the exponentials until their sum is known. The same loop
    // reads the next row for its maximum.
    if (sizeof(T) == sizeof(R)) {
        const ulong first = get_group_id(0) * each, last = first + each < rows ? first + each : rows;
        V best;
        FOLD_ROW(best, all + first * n, n, -INFINITY, (V)(R)-INFINITY, LARGER, ITSELF)
        for (ulong row = first; row < last; row++) {
            const __global T *x = all + row * n, *next = row + 1 < last ? x + n : x;
            __global T* y = out + row * n;
            const R top = largest_of(best);
            V near = (V)(R)0, far = (V)(R)0, near_best = (V)(R)-INFINITY, far_best = near_best;
            size_t i = 0;
            for (; i + 2 * LANES <= n; i += 2 * LANES) {
                const V a = EXP_DOWN(VLOAD_T(x, i) - top), b = EXP_DOWN(VLOAD_T(x, i + LANES) - top);
                const V c = VLOAD_T(next, i), d = VLOAD_T(next, i + LANES);
                VSTORE_T(y, i, a);
                VSTORE_T(y, i + LANES, b);
                near += a;
                far += b;
                near_best = LARGER(near_best, c);
                far_best = LARGER(far_best, d);
            }
            for (; i < n; i += LANES) {
                const V a = EXP_DOWN(load_part_T(x, i, n, -INFINITY) - top), c = load_part_T(next, i, n, -INFINITY);
                store_part_T(y, i, n, a);
                near += a;
                near_best = LARGER(near_best, c);
            }
            best = LARGER(near_best, far_best);
            const R share = (R)1 / sum_of(near + far);
            EACH_PART(i, n, PUT_PART(T, y, i, n, PART_OF(T, y, i, n, 0) * share);)
        }
        return;
    }
#endif
    EACH_ROW(row) {
        const __global T* x = all + row * n;
        __global T* y = out + row * n;
        V best, sum;
        FOLD_ROW(best, x, n, -INFINITY, (V)(R)-INFINITY, LARGER, ITSELF)
        const R top = ROW_LARGEST(best);
        FOLD_ROW(sum, x, n, -INFINITY, (V)(R)0, ADDED, EXPONENTIAL)
        const R total = ROW_SUM(sum);
        const R log_total = log(total);
        EACH_PART(i, n,
            const V shifted = PART_OF(T, x, i, n, 0) - top;
            PUT_PART(T, y, i, n, LOG ? shifted - log_total : exp(shifted) / total);)
    }
}
#endif

#ifdef SOFTMAX_BACKWARD
__kernel GROUP_OF_ROW void softmax_backward(const __global T* dy, const __global T* y, __global T* dx, const ulong n) {
    SHARED
    dy += get_group_id(0) * n;
    y += get_group_id(0) * n;
    dx += get_group_id(0) * n;
    V sum = (V)(R)0;
    EACH_VECTOR(i, n) sum += LOG ? load_part_T(dy, i, n, 0) : load_part_T(dy, i, n, 0) * load_part_T(y, i, n, 0);
    const R total = ROW_SUM(sum);
    EACH_VECTOR(i, n) {
        const V g = load_part_T(dy, i, n, 0), out = load_part_T(y, i, n, 0);
        store_part_T(dx, i, n, LOG ? g - exp(out) * total : out * (g - total));
    }
}
#endif

#ifdef SOFTMAX_ACROSS
// Over the middle dimension of [outer, n, inner]: a work item has LANES neighbouring lines.
__kernel void softmax_across(const __global T* x, __global T* y, const ulong n, const ulong inner) {
    const size_t c = get_global_id(0) * LANES;
    if (c >= inner) return;
    x += get_global_id(1) * n * inner;
    y += get_global_id(1) * n * inner;
    V top = (V)(R)-INFINITY, total = (V)(R)0;
    for (size_t j = 0; j < n; j++) {
        const V some = load_part_T(x + j * inner, c, inner, 0);
        top = LARGER(top, some);
    }
    for (size_t j = 0; j < n; j++) total += exp(load_part_T(x + j * inner, c, inner, 0) - top);
    const V log_total = log(total);
    for (size_t j = 0; j < n; j++) {
        const V shifted = load_part_T(x + j * inner, c, inner, 0) - top;
        store_part_T(y + j * inner, c, inner, LOG ? shifted - log_total : exp(shifted) / total);
    }
}
#endif

#ifdef SOFTMAX_ACROSS_BACKWARD
__kernel void softmax_across_backward(const __global T* dy, const __global T* y, __global T* dx, const ulong n,
                                      const ulong inner) {
    const size_t c = get_global_id(0) * LANES;
    if (c >= inner) return;
    dy += get_global_id(1) * n * inner;
    y += get_global_id(1) * n * inner;
    dx += get_global_id(1) * n * inner;
    V total = (V)(R)0;
    for (size_t j = 0; j < n; j++) {
        const V g = load_part_T(dy + j * inner, c, inner, 0);
        total += LOG ? g : g * load_part_T(y + j * inner, c, inner, 0);
    }
    for (size_t j = 0; j < n; j++) {
        const V g = load_part_T(dy + j * inner, c, inner, 0), out = load_part_T(y + j * inner, c, inner, 0);
        store_part_T(dx + j * inner, c, inner, LOG ? g - exp(out) * total : out * (g - total));
    }
}
#endif

// Row norms. P: the dtype of weight and bias; LOW: of the copy in half precision. PRESENT, a bit per optional
// argument: weight (1), bias (2), copy (4), gradient so far (8).
#if defined(NORM) || defined(NORM_BACKWARD) || defined(NORM_COLUMNS)
PARTS(P)
PARTS(LOW)
#endif

#ifdef NORM
#define SQUARE_OF(v) (((v) - mean) * ((v) - mean))
__kernel GROUP_OF_ROW void row_norm(const __global T* all, const __global P* weight, const __global P* bias,
                                    __global T* y, __global LOW* low, __global R* means, __global R* rstds,
                                    const ulong n, const R eps, const ulong rows, const ulong each) {
    SHARED
    EACH_ROW(row) {
        const __global T* x = all + row * n;
        V squares;
        R mean = 0;
#if !RMS
        V sum;
        FOLD_ROW(sum, x, n, 0, (V)(R)0, ADDED, ITSELF)
        mean = ROW_SUM(sum) / (R)n;
#endif
        FOLD_ROW(squares, x, n, mean, (V)(R)0, ADDED, SQUARE_OF)
        const R rstd = (R)1 / sqrt(ROW_SUM(squares) / (R)n + eps);
        EACH_PART(i, n,
            V v = (PART_OF(T, x, i, n, mean) - mean) * rstd;
            if (PRESENT & 1) v *= PART_OF(P, weight, i, n, 0);
            if (PRESENT & 2) v += PART_OF(P, bias, i, n, 0);
            PUT_PART(T, y + row * n, i, n, v);
            if (PRESENT & 4) { PUT_PART(LOW, low + row * n, i, n, v); })
        if (IS_FIRST) {
            if (!RMS) means[row] = mean;
            rstds[row] = rstd;
        }
    }
}
#endif

#ifdef NORM_BACKWARD
__kernel GROUP_OF_ROW void row_norm_backward(const __global T* dy, const __global T* x, const __global P* weight,
                                             const __global R* means, const __global R* rstds, const __global T* so_far,
                                             __global T* dx, __global LOW* low, const ulong n) {
    SHARED
    const size_t row = get_group_id(0);
    dy += row * n;
    x += row * n;
    const R mean = RMS ? 0 : means[row], rstd = rstds[row];
    V along = (V)(R)0, sum = (V)(R)0;
    EACH_VECTOR(i, n) {
        V g = load_part_T(dy, i, n, 0);
        if (PRESENT & 1) g *= load_part_P(weight, i, n, 0);
        along += g * ((load_part_T(x, i, n, mean) - mean) * rstd);
        sum += g;
    }
    const R share = ROW_SUM(along) / (R)n, offset = RMS ? 0 : ROW_SUM(sum) / (R)n;
    EACH_VECTOR(i, n) {
        V g = load_part_T(dy, i, n, 0);
        if (PRESENT & 1) g *= load_part_P(weight, i, n, 0);
        V d = (g - (load_part_T(x, i, n, mean) - mean) * rstd * share - offset) * rstd;
        if (PRESENT & 8) d += load_part_T(so_far + row * n, i, n, 0);
        store_part_T(dx + row * n, i, n, d);
        if (PRESENT & 4) store_part_LOW(low + row * n, i, n, d);
    }
}
#endif

#ifdef NORM_COLUMNS
// Gradients of weight and bias over `piece` rows: sums[piece, 0] of dy * hat and sums[piece, 1] of dy.
__kernel void row_norm_columns(const __global T* dy, const __global T* x, const __global R* means,
                               const __global R* rstds, __global R* sums, const ulong rows, const ulong n,
                               const ulong piece) {
    const size_t c = get_global_id(0) * LANES, first = get_global_id(1) * piece;
    if (c >= n) return;
    const size_t last = first + piece < rows ? first + piece : rows;
    V along = (V)(R)0, sum = (V)(R)0;
    for (size_t row = first; row < last; row++) {
        const R mean = RMS ? 0 : means[row];
        const V g = load_part_T(dy + row * n, c, n, 0);
        along += g * ((load_part_T(x + row * n, c, n, 0) - mean) * rstds[row]);
        sum += g;
    }
    sums += get_global_id(1) * 2 * n;
    store_part_S(sums, c, n, along);
    store_part_S(sums + n, c, n, sum);
}
#endif

#ifdef CROSS_ENTROPY
typedef struct { ulong classes; long ignored; R smoothing; } Spec;

// Weight of the row's class, zero if the row is ignored. Records a target out of range.
inline R weight_of(const long target, const Spec spec, const __global T* weight, __global Fault* fault) {
    if (target == spec.ignored) return 0;
    if (target < 0 || target >= (long)spec.classes) {
        note_fault(target, spec.classes, fault);
        return 0;
    }
    return WEIGHTED ? (R)LOAD_T(weight, target) : (R)1;
}
inline int counts(const long target, const Spec spec) {
    return target != spec.ignored && target >= 0 && target < (long)spec.classes;
}
#endif

#ifdef CROSS_ENTROPY_FORWARD
__kernel GROUP_OF_ROW void cross_entropy(const Spec spec, const __global T* x, const __global long* targets,
                                         const __global T* weight, __global R* loss, __global R* row_weight,
                                         __global R* lse, __global Fault* fault) {
    SHARED
    const size_t row = get_group_id(0), n = spec.classes;
    x += row * n;
    V best = (V)(R)-INFINITY, sum = (V)(R)0, dot_ = (V)(R)0, weights = (V)(R)0;
    EACH_VECTOR(i, n) {
        const V some = load_part_T(x, i, n, -INFINITY);
        best = LARGER(best, some);
    }
    R top = ROW_LARGEST(best);
    top = isinf(top) ? 0 : top;
    EACH_VECTOR(i, n) {
        sum += EXP_DOWN(load_part_T(x, i, n, -INFINITY) - top);
        if (SMOOTH) {
            const V w = WEIGHTED ? load_part_T(weight, i, n, 0) : (V)(R)1;
            dot_ += load_part_T(x, i, n, 0) * w;
            weights += w;
        }
    }
    const R all = top + log(ROW_SUM(sum));
    R uniform = 0;
    if (SMOOTH) {
        const R total = ROW_SUM(dot_), weight_sum = WEIGHTED ? ROW_SUM(weights) : (R)n;
        uniform = (all * weight_sum - total) * (spec.smoothing / (R)n);
    }
    if (IS_FIRST) {
        const long target = targets[row];
        const R own = weight_of(target, spec, weight, fault);
        R value = 0;
        if (counts(target, spec)) {
            value = (all - (R)LOAD_T(x, target)) * own;
            if (SMOOTH) value = value * ((R)1 - spec.smoothing) + uniform;
        }
        loss[row] = value;
        row_weight[row] = own;
        lse[row] = all;
    }
}
#endif

#ifdef CROSS_ENTROPY_BACKWARD
__kernel GROUP_OF_ROW void cross_entropy_backward(const Spec spec, const __global T* x, const __global long* targets,
                                                  const __global T* weight, const __global R* lse,
                                                  const __global R* dloss, __global T* dx, __global Fault* fault) {
    SHARED
    const size_t row = get_group_id(0), n = spec.classes;
    x += row * n;
    dx += row * n;
    const long target = targets[row];
    const R own = weight_of(target, spec, weight, fault);
    if (!counts(target, spec)) {
        EACH_VECTOR(i, n) store_part_T(dx, i, n, (V)(R)0);
        return;
    }
    R weight_sum = (R)n;
    if (SMOOTH && WEIGHTED) {
        V weights = (V)(R)0;
        EACH_VECTOR(i, n) weights += load_part_T(weight, i, n, 0);
        weight_sum = ROW_SUM(weights);
    }
    // Shares of the row's own class and of the uniform distribution.
    const R plain = dloss[row] * ((R)1 - spec.smoothing) * own, uniform = dloss[row] * (spec.smoothing / (R)n);
    const R scale = plain + uniform * weight_sum, all = lse[row];
    EACH_VECTOR(i, n) {
        V d = exp(load_part_T(x, i, n, -INFINITY) - all) * scale;
        if (SMOOTH) d -= WEIGHTED ? uniform * load_part_T(weight, i, n, 0) : (V)uniform;
        store_part_T(dx, i, n, d);
    }
    // The same work item updates the element that it has just written.
    if ((size_t)target / LANES % ITEMS == get_local_id(0)) {
        R d = exp((R)LOAD_T(x, target) - all) * scale - plain;
        if (SMOOTH) d -= WEIGHTED ? uniform * (R)LOAD_T(weight, target) : uniform;
        STORE_T(dx, target, d);
    }
}
#endif
