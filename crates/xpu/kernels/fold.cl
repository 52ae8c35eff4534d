// Folds values into indexed places: sum, product, maximum, minimum, overwrite. The run-time argument `op` selects one.
//
// T, OUT: dtypes of the values and the output, run-time codes (ANY) or compile-time types; R: the type of the
// arithmetic.

#define OP_SET 0
#define OP_ADD 1
#define OP_MUL 2
#define OP_LARGER 3
#define OP_SMALLER 4
inline R folded(R old, R x, uint op) {
    switch (op) {
        case OP_ADD: return old + x;
        case OP_MUL: return old * x;
        case OP_LARGER: return old >= x || old != old ? old : x;
        case OP_SMALLER: return old <= x || old != old ? old : x;
        default: return x;
    }
}
#if HAS_VALUES
#define VALUE(i) LOAD_T(values, i)
#else
#define VALUE(i) number
#endif

#ifdef FOLD
typedef NEST(1) Outer;
typedef NEST(2) Inner;

// out[offsets[p] + r] op= values[p, r] for all p in order. A work item has one r and the places from `slice * span` on;
// no other work item writes there.
__kernel void fold(const Outer outer, const Inner inner, const __global long* offsets, const __global T* values,
                   const R number, __global OUT* out, const ulong positions, const ulong block, const ulong span,
                   const uint codes, const uint op) {
    const ulong r = get_global_id(0);
    const long low = (long)(get_global_id(1) * span), high = low + (long)span;
    if (r >= block) return;
    long in[2] = {0, 0};
    NEST_OFFSETS(inner, 2, r, 0, in);
    for (ulong p = 0; p < positions; p++) {
        const long offset = offsets[p];
        if (offset < low || offset >= high) continue;
        long at[1] = {0};
        NEST_OFFSETS(outer, 1, p, 0, at);
        const size_t place = offset + in[0];
        STORE_OUT(out, place, folded(LOAD_OUT(out, place), VALUE(at[0] + in[1]), op));
    }
}
#endif

#ifdef SCATTER
typedef NEST(3) Lines;

// A work item processes a line in order: no two lines write to the same place.
__kernel void scatter(const Lines lines, const __global long* index, const __global T* values, const R number,
                      __global OUT* out, const ulong count, const ulong length, const long size, const long stride,
                      const long index_step, const long value_step, __global Fault* fault, const uint codes,
                      const uint op) {
    const ulong line = get_global_id(0);
    if (line >= count) return;
    long at[3] = {0, 0, 0};
    NEST_OFFSETS(lines, 3, line, 0, at);
    for (ulong i = 0; i < length; i++) {
        const long k = wrap_index(index[at[1] + (long)i * index_step], size, fault);
        if (k < 0) continue;
        const size_t place = at[0] + k * stride;
        STORE_OUT(out, place, folded(LOAD_OUT(out, place), VALUE(at[2] + (long)i * value_step), op));
    }
}
#endif
