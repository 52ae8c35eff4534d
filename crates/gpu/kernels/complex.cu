// Products and quotients of complex numbers: one thread per number. T is the dtype of the parts, OP the operation.

enum { MUL, MUL_CONJ, DIV };

__device__ inline float product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double product(double a, double b) { return __dmul_rn(a, b); }
__device__ inline float magnitude(float a) { return fabsf(a); }
__device__ inline double magnitude(double a) { return fabs(a); }

typedef Vec<T, 2> Number2;

// Operands of one number have a step of zero. Products are rounded before they are added: a number times its conjugate
// has no imaginary part.
extern "C" __global__ void complex_pairs(const Number2* a, const Number2* b, Number2* out, u64 count, u64 a_step, u64 b_step) {
    u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (at >= count) return;
    Number2 x = a[at * a_step], y = b[at * b_step], z;
    T c = y.v[0], d = y.v[1];
    if (OP != DIV) {
        if (OP == MUL_CONJ) d = -d;
        z.v[0] = product(x.v[0], c) - product(x.v[1], d);
        z.v[1] = product(x.v[0], d) + product(x.v[1], c);
    } else if (magnitude(c) >= magnitude(d)) {
        T ratio = d / c, scale = (T)1 / (c + d * ratio);
        z.v[0] = (x.v[0] + x.v[1] * ratio) * scale;
        z.v[1] = (x.v[1] - x.v[0] * ratio) * scale;
        if (c == (T)0 && d == (T)0) {
            z.v[0] = x.v[0] / magnitude(c);
            z.v[1] = x.v[1] / magnitude(d);
        }
    } else {
        T ratio = c / d, scale = (T)1 / (c * ratio + d);
        z.v[0] = (x.v[0] * ratio + x.v[1]) * scale;
        z.v[1] = (x.v[1] * ratio - x.v[0]) * scale;
    }
    out[at] = z;
}

// Rows of n numbers, each row with its product with i behind it.
extern "C" __global__ void complex_blocks(const Number2* a, Number2* out, u64 count, u64 n) {
    u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (at >= count) return;
    Number2 x = a[at], turned;
    turned.v[0] = -x.v[1];
    turned.v[1] = x.v[0];
    u64 to = at + quotient(at, n) * n;
    out[to] = x;
    out[to + n] = turned;
}
