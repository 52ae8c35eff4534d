// Rows that ITEMS work items of a group split: 1 on a CPU, where one core has a whole row. R, V, LANES: see
// vectors.cl.

// The larger of two by comparison. If one is NaN the result may be either; the exponentials propagate the NaN.
#define LARGER(a, b) CHOOSE((a) > (b), a, b)

// Places of a row of n elements that are this work item's, LANES at a time.
#define EACH_VECTOR(i, n) for (size_t i = get_local_id(0) * LANES; i < (n); i += ITEMS * LANES)

// Runs `...` for each vector of a row of n elements, at place i. `whole` is a constant: whether all its elements are in
// the row. PART_OF(T) loads accordingly.
#define EACH_PART(i, n, ...)                           \
    {                                                  \
        size_t i = get_local_id(0) * LANES;            \
        for (; i + LANES <= (n); i += ITEMS * LANES) { \
            enum { whole = 1 };                        \
            __VA_ARGS__                                \
        }                                              \
        for (; i < (n); i += ITEMS * LANES) {          \
            enum { whole = 0 };                        \
            __VA_ARGS__                                \
        }                                              \
    }
#define PART_OF(T, p, i, n, pad) (whole ? VLOAD_##T(p, i) : load_part_##T(p, i, n, pad))
#define PUT_PART(T, p, i, n, v)     \
    if (whole) VSTORE_##T(p, i, v); \
    else store_part_##T(p, i, n, v)

// Folds VALUE of a row's vectors into `all` with four accumulators, which hide the latency. JOINED joins two; `pad`
// replaces elements beyond the row.
#define FOLD_ROW(all, x, n, pad, empty, JOINED, VALUE)                                    \
    {                                                                                     \
        V a_ = (empty), b_ = (empty), c_ = (empty), d_ = (empty);                         \
        size_t i_ = get_local_id(0) * LANES;                                              \
        const size_t step_ = ITEMS * LANES;                                               \
        for (; i_ + 3 * step_ + LANES <= (n); i_ += 4 * step_) {                          \
            a_ = JOINED(a_, VALUE(VLOAD_T(x, i_)));                                       \
            b_ = JOINED(b_, VALUE(VLOAD_T(x, i_ + step_)));                               \
            c_ = JOINED(c_, VALUE(VLOAD_T(x, i_ + 2 * step_)));                           \
            d_ = JOINED(d_, VALUE(VLOAD_T(x, i_ + 3 * step_)));                           \
        }                                                                                 \
        for (; i_ < (n); i_ += step_) a_ = JOINED(a_, VALUE(load_part_T(x, i_, n, pad))); \
        a_ = JOINED(a_, b_);                                                              \
        c_ = JOINED(c_, d_);                                                              \
        all = JOINED(a_, c_);                                                             \
    }
#define ADDED(a, b) ((a) + (b))
#define ITSELF(v) (v)

#if ITEMS == 1
#define SHARED
#define ROW_SUM(v) sum_of(v)
#define ROW_LARGEST(v) largest_of(v)
#else
// Declaration for kernels that reduce.
#define SHARED __local R shared[ITEMS];
#define ROW_SUM(v) group_sum(sum_of(v), shared)
#define ROW_LARGEST(v) group_largest(largest_of(v), shared)
#define GROUP_FOLD(name, op)                                                         \
    inline R name(R x, __local R* shared) {                                          \
        const uint item = get_local_id(0);                                           \
        shared[item] = x;                                                            \
        for (uint half_ = ITEMS / 2; half_ > 0; half_ /= 2) {                        \
            barrier(CLK_LOCAL_MEM_FENCE);                                            \
            if (item < half_) shared[item] = op(shared[item], shared[item + half_]); \
        }                                                                            \
        barrier(CLK_LOCAL_MEM_FENCE);                                                \
        const R all = shared[0];                                                     \
        barrier(CLK_LOCAL_MEM_FENCE);                                                \
        return all;                                                                  \
    }
GROUP_FOLD(group_sum, ADDED)
GROUP_FOLD(group_largest, fmax)
#endif
#define GROUP_OF_ROW __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
// Loop over the rows of a group: on a CPU a group has several.
#define EACH_ROW(row) \
    for (ulong row = get_group_id(0) * each; row < rows && row < (get_group_id(0) + 1) * each; row++)
#define IS_FIRST (get_local_id(0) == 0)
