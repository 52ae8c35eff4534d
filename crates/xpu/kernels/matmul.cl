// Batched matrix products: out = activation(alpha * a @ b + beta * out + bias).
//
// T: dtype of a, b and bias; OUT: of the output; R: the type sums are kept in.

typedef struct {
    ulong batch, m, n, k;
    long a[3], b[3], out[3];
    long bias;
} Problem;

#ifdef PLAIN
// Any strides and dtypes: a work item per element of the output. flags: the activation, whether there is a bias, whether the output is read.
__kernel void matmul_plain(const Problem p, const __global T* a, const __global T* b, const __global T* bias, __global OUT* out, const R alpha, const R beta,
                           const uint codes, const uint flags) {
    const ulong j = get_global_id(0), i = get_global_id(1), batch = get_global_id(2);
    if (j >= p.n) return;
    const long row = (long)batch * p.a[0] + (long)i * p.a[1], column = (long)batch * p.b[0] + (long)j * p.b[2];
    R sum = 0;
    for (ulong k = 0; k < p.k; k++) sum += LOAD_T(a, row + (long)k * p.a[2]) * LOAD_T(b, column + (long)k * p.b[1]);
    const size_t place = (long)batch * p.out[0] + (long)i * p.out[1] + (long)j * p.out[2];
    R x = alpha * sum;
    if (flags & 32) x += beta * LOAD_OUT(out, place);
    if (flags & 16) x += LOAD_T(bias, (long)j * p.bias);
    if ((flags & 15) == 1) x = (x > 0 || x != x) ? x : (R)0;
#if R_KIND != 2
    if ((flags & 15) == 2) x = (R)0.5 * x * ((R)1 + erf(x * (R)0.7071067811865476));
    if ((flags & 15) == 3) x = (R)0.5 * x * ((R)1 + tanh((R)0.7978845608028654 * (x + (R)0.044715 * x * x * x)));
#endif
    STORE_OUT(out, place, x);
}
#endif
