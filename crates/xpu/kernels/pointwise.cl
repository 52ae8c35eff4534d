// Pointwise ops: one kernel for every row of the op table, and for copies, fills and selections.
//
// C: the dtype arithmetic is carried out in; R: the type it is computed in (small integers in int). ROW: the function
// `row_value` with the op's expression. DECLARE: the kernel's inputs. LOADS: a load for each input into x0, x1, …
// RESULT: the output's value. OPERANDS: inputs and output. FAST: the innermost loop is the first dimension of the
// launch, and STRIDE0, STRIDE1, … its strides, constants if known.

ROW

typedef NEST(OPERANDS) Nest;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void pointwise(const Nest nest, const ulong count, __global OUT* out DECLARE) {
    long at[OPERANDS] = {0};
#if FAST
    const size_t inner = get_global_id(0);
    if (inner >= nest.shape[0]) return;
    NEST_OFFSETS(nest, OPERANDS, get_global_id(1), 1, at);
    INNER_OFFSETS
#else
    const ulong position = get_global_id(0);
    if (position >= count) return;
    NEST_OFFSETS(nest, OPERANDS, position, 0, at);
#endif
    LOADS
    STORE_OUT(out, at[0], RESULT);
}
