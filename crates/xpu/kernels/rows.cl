// Rows that ITEMS work items of a group share: 1 on a CPU, where a row's vectors are a core's. R, V, LANES: see
// vectors.cl.

// The larger, by a comparison: where one is NaN either may come, which an exponential of it then shows.
#define LARGER(a, b) CHOOSE((a) > (b), a, b)

// Places of a row of n elements that are this work item's, LANES at a time.
#define EACH_VECTOR(i, n) for (size_t i = get_local_id(0) * LANES; i < (n); i += ITEMS * LANES)

#if ITEMS == 1
#define SHARED
#define ROW_SUM(v) sum_of(v)
#define ROW_LARGEST(v) largest_of(v)
#else
// To be declared in kernels that reduce.
#define SHARED __local R shared[ITEMS];
#define ROW_SUM(v) group_sum(sum_of(v), shared)
#define ROW_LARGEST(v) group_largest(largest_of(v), shared)
#define GROUP_FOLD(name, op)                                                                    \
    inline R name(R x, __local R* shared) {                                                     \
        const uint item = get_local_id(0);                                                      \
        shared[item] = x;                                                                       \
        for (uint half_ = ITEMS / 2; half_ > 0; half_ /= 2) {                                   \
            barrier(CLK_LOCAL_MEM_FENCE);                                                       \
            if (item < half_) shared[item] = op(shared[item], shared[item + half_]);            \
        }                                                                                       \
        barrier(CLK_LOCAL_MEM_FENCE);                                                           \
        const R all = shared[0];                                                                \
        barrier(CLK_LOCAL_MEM_FENCE);                                                           \
        return all;                                                                             \
    }
#define ADDED(a, b) ((a) + (b))
GROUP_FOLD(group_sum, ADDED)
GROUP_FOLD(group_largest, fmax)
#endif
#define GROUP_OF_ROW __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
#define IS_FIRST (get_local_id(0) == 0)
