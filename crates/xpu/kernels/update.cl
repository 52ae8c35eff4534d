// A parameter's step by its optimizer's rule. T: the dtype of parameter, gradient and states; G: of the gradients' factor, if it is a tensor (SCALED).
// RULE: 0 SGD, 1 Adam, 2 Adamax, 3 RMSprop, 4 Adadelta. STATES: which states there are, a bit each.

#define HAS(i) (STATES >> (i) & 1)

// The rule's factors in the order of UpdateRule's fields, and one less the first two of them.
typedef struct { R sign, decay, shrink, f[6], rest[2]; } Factors;

inline R larger(R a, R b) { return (a >= b || a != a) ? a : b; }

__kernel void update(__global T* param, const __global T* grad, __global T* state0, __global T* state1, __global T* state2, const ulong count,
                     const Factors e, const __global G* factor, const R number) {
    const size_t i = get_global_id(0);
    if (i >= count) return;
#if SCALED
    const R scale = (R)LOAD_G(factor, 0) * e.sign;
#else
    const R scale = number * e.sign;
#endif
    R p = LOAD_T(param, i) * e.shrink, g = LOAD_T(grad, i) * scale;
    R a = HAS(0) ? LOAD_T(state0, i) : (R)0, b = HAS(1) ? LOAD_T(state1, i) : (R)0, c = HAS(2) ? LOAD_T(state2, i) : (R)0;
    // Without weight decay the parameter stays out of the gradient, even where it is infinite.
    if (e.decay != 0) g += e.decay * p;
#if RULE == 0
    // decay, gain, step, grad_step
    if (HAS(0)) {
        a = e.f[0] * a + e.f[1] * g;
        p -= e.f[2] * a + e.f[3] * g;
    } else {
        p -= e.f[3] * g;
    }
#elif RULE == 1
    // beta1, beta2, eps, root, step, grad_step
    a += e.rest[0] * (g - a);
    b = e.f[1] * b + e.rest[1] * (g * g);
    if (HAS(2)) c = larger(c, b);
    p -= (e.f[4] * a + e.f[5] * g) / (e.f[3] * sqrt(HAS(2) ? c : b) + e.f[2]);
#elif RULE == 2
    // beta1, beta2, eps, step
    a += e.rest[0] * (g - a);
    b = larger(e.f[1] * b, fabs(g) + e.f[2]);
    p -= e.f[3] * a / b;
#elif RULE == 3
    // decay, gain, eps, momentum, step
    a = e.f[0] * a + e.f[1] * (g * g);
    R spread = a;
    if (HAS(1)) {
        b += e.f[1] * (g - b);
        spread -= b * b;
    }
    R change = g / (sqrt(spread) + e.f[2]);
    if (HAS(2)) change = c = e.f[3] * c + change;
    p -= e.f[4] * change;
#else
    // rho, eps, step
    a = e.f[0] * a + e.rest[0] * (g * g);
    const R change = sqrt(b + e.f[1]) / sqrt(a + e.f[1]) * g;
    b = e.f[0] * b + e.rest[0] * (change * change);
    p -= e.f[2] * change;
#endif
    STORE_T(param, i, p);
    if (HAS(0)) STORE_T(state0, i, a);
    if (HAS(1)) STORE_T(state1, i, b);
    if (HAS(2)) STORE_T(state2, i, c);
}
