// Pointwise ops on small tensors: several rows of the op table in one kernel, with dtypes as run-time arguments.
//
// ROWS: the rows' functions. CASES: `case` labels that set y. Inputs are x0 … x4, parameters p0 … p3, `bits` the width
// of the integers.

ROWS

typedef NEST(6) Nest;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void pointwise_any(const Nest nest, const ulong count, __global uchar* out, const __global uchar* in0,
                   const __global uchar* in1, const __global uchar* in2, const __global uchar* in3,
                   const __global uchar* in4, const R n0, const R n1, const R n2, const R n3, const R n4, const R p0,
                   const R p1, const R p2, const R p3, const uint codes, const uint out_code, const uint mode,
                   const uint op) {
    const ulong position = get_global_id(0);
    if (position >= count) return;
    long at[6] = {0};
    NEST_OFFSETS(nest, 6, position, 0, at);
    const int bits = mode == CODE_I32 ? 32 : mode == CODE_I16 ? 16 : mode == CODE_I8 || mode == CODE_U8
        || mode == CODE_BOOL ? 8 : 64;
    R x[5] = {n0, n1, n2, n3, n4};
    const __global uchar* in[5] = {in0, in1, in2, in3, in4};
    for (int i = 0; i < 5; i++) {
        const uint code = codes >> 4 * i & 15;
        if (code < CODE_NONE) x[i] = load_any(in[i], code, at[i + 1], op == 1 && i == 0 ? CODE_BOOL : mode);
    }
    const R x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3], x4 = x[4];
    R y;
    switch (op) {
        case 0: y = x0; break;
        case 1: y = x0 != 0 ? x1 : x2; break;
        CASES
        default: y = 0; break;
    }
#if R_KIND == 2
    y = cut(y, mode);
#endif
    store_any(out, out_code, at[0], y);
}
