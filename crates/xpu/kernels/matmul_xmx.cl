// Products of half-precision matrices on the matrix units (XMX) of Intel's GPUs:
// cl_intel_subgroup_matrix_multiply_accumulate for sub-groups of 16. One instruction multiplies 8 x 16 by 16 x 16
// elements and adds to 8 x 16 sums of f32.
//
// HALF: 0 bf16, 1 f16. EMULATED: shuffles replace the instruction on devices that have sub-groups only.

#if EMULATED
// Row i of a is a.s[i] over the lanes; rows 2 j and 2 j + 1 of b are the halves of b.s[j] over the lanes.
#if HALF
#define WIDENED(x) f16_to_float((ushort)(x))
#else
#define WIDENED(x) bf16_to_float((ushort)(x))
#endif
inline float8 multiply_add(short8 a, int8 b, float8 sums) {
    short rows[8];
    int pairs[8];
    float all[8];
    vstore8(a, 0, rows);
    vstore8(b, 0, pairs);
    vstore8(sums, 0, all);
    for (uint k = 0; k < 16; k++) {
        const float y = WIDENED((uint)pairs[k / 2] >> (k % 2 * 16) & 0xffffu);
        for (int i = 0; i < 8; i++) all[i] = fma(WIDENED(intel_sub_group_shuffle((int)(ushort)rows[i], k)), y, all[i]);
    }
    return vload8(0, all);
}
#elif HALF
// Declared here because some versions of Intel's compiler do not declare them for OpenCL C 1.2.
float8 __attribute__((overloadable, convergent)) intel_sub_group_f16_f16_matrix_mad_k16(short8 a, int8 b, float8 sums);
#define multiply_add(a, b, sums) intel_sub_group_f16_f16_matrix_mad_k16(a, b, sums)
#else
float8 __attribute__((overloadable, convergent)) intel_sub_group_bf16_bf16_matrix_mad_k16(short8 a, int8 b,
    float8 sums);
#define multiply_add(a, b, sums) intel_sub_group_bf16_bf16_matrix_mad_k16(a, b, sums)
#endif

// Packs panels of 32 rows of the left operand, or columns of the right one, 16 elements along k at a time: 512 elements
// in the lanes' load order.
#define BLOCK 512

#ifdef PACK_XMX
__kernel void pack_xmx(const __global ushort* x, __global ushort* panels, const ulong count, const ulong depth,
                       const long stride, const long depth_stride, const ulong heads, const long image_stride,
                       const long head_stride) {
    const ulong step = get_group_id(0), panel = get_group_id(1), batch = get_group_id(2);
    x += (long)(batch / heads) * image_stride + (long)(batch % heads) * head_stride;
    panels += ((batch * get_num_groups(1) + panel) * get_num_groups(0) + step) * BLOCK;
    for (uint e = get_local_id(0); e < BLOCK; e += get_local_size(0)) {
#if RIGHT
        // Pairs along k are adjacent.
        const uint line = e / 256 * 16 + e % 32 / 2, along = e % 256 / 32 * 2 + e % 2;
#else
        const uint line = e / 16, along = e % 16;
#endif
        const ulong i = panel * 32 + line, k = step * 16 + along;
        panels[e] = i < count && k < depth ? x[(long)i * stride + (long)k * depth_stride] : (ushort)0;
    }
}
#endif

#ifdef MATMUL_XMX
// A sub-group has 32 x 32 sums. A group has eight sub-groups, 4 x 2, that share its panels in the cache.
__kernel __attribute__((reqd_work_group_size(128, 1, 1))) __attribute__((intel_reqd_sub_group_size(16)))
void matmul_xmx(const Problem p, const __global ushort* a, const __global uint* b, const ulong a_batch,
                const ulong b_batch, const __global C* bias, __global OUT* out, const R alpha, const R beta,
                const uint flags) {
    const uint part = get_sub_group_id(), lane = get_sub_group_local_id();
    const ulong batch = get_group_id(2), row_panel = get_group_id(0) * 4 + part / 2,
        column_panel = get_group_id(1) * 2 + part % 2;
    if (row_panel * 32 >= p.m || column_panel * 32 >= p.n) return;
    const ulong steps = (p.k + 15) / 16;
    const __global ushort* left = a + batch * a_batch + row_panel * steps * BLOCK;
    const __global uint* right = b + batch * b_batch + column_panel * steps * (BLOCK / 2);
    float8 sums[4][2];
    _Pragma("unroll") for (int r = 0; r < 4; r++) {
        _Pragma("unroll") for (int c = 0; c < 2; c++) sums[r][c] = (float8)0.0f;
    }
    for (ulong step = 0; step < steps; step++) {
        int8 columns[2];
        _Pragma("unroll") for (int c = 0; c < 2; c++)
            columns[c] = as_int8(intel_sub_group_block_read8(right + step * (BLOCK / 2) + c * 128));
        _Pragma("unroll") for (int r = 0; r < 4; r++) {
            const short8 rows = as_short8(intel_sub_group_block_read_us8(left + step * BLOCK + r * 128));
            _Pragma("unroll") for (int c = 0; c < 2; c++) sums[r][c] = multiply_add(rows, columns[c], sums[r][c]);
        }
    }
    _Pragma("unroll") for (int r = 0; r < 4; r++) {
        _Pragma("unroll") for (int c = 0; c < 2; c++) {
            float some[8];
            vstore8(sums[r][c], 0, some);
            const ulong j = column_panel * 32 + c * 16 + lane;
            _Pragma("unroll") for (int i = 0; i < 8; i++) {
                const ulong row = row_panel * 32 + r * 8 + i;
                if (row < p.m && j < p.n) FINISH(row, j, some[i]);
            }
        }
    }
}
#endif
