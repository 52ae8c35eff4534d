// A parameter's step by its optimizer's rule. T: the dtype of parameter, gradient and states; G: of the gradients'
// factor, if it is a tensor (SCALED). STATES: a bit per state that exists. RULE_STATES, RULE_FACTORS, RULE and
// RULE_KEEP: the rule's row.

#define HAS(i) (STATES >> (i) & 1)

// The rule's factors, as UpdateRule::factors() orders them.
typedef struct { R sign, decay, shrink, f[8]; } Factors;

#define let const R
inline R rl_fma(R a, R b, R c) { return fma(a, b, c); }
inline R rl_sqrt(R x) { return sqrt(x); }
inline R rl_max(R a, R b) { return (a >= b || a != a) ? a : b; }
inline R rl_abs(R x) { return fabs(x); }
inline R rl_choose(int present, R a, R b) { return present ? a : b; }

inline void rule(R* at, const R g, R* state0, R* state1, R* state2, const Factors* e) {
    R p = *at;
    RULE_STATES
    RULE_FACTORS
    RULE
    RULE_KEEP
    *at = p;
}

__kernel void update(__global T* param, const __global T* grad, __global T* state0, __global T* state1,
                     __global T* state2, const ulong count, const Factors e, const __global G* factor, const R number) {
    const size_t i = get_global_id(0);
    if (i >= count) return;
#if SCALED
    const R scale = (R)LOAD_G(factor, 0) * e.sign;
#else
    const R scale = number * e.sign;
#endif
    R p = LOAD_T(param, i) * e.shrink, g = LOAD_T(grad, i) * scale;
    R a = HAS(0) ? LOAD_T(state0, i) : (R)0, b = HAS(1) ? LOAD_T(state1, i) : (R)0,
        c = HAS(2) ? LOAD_T(state2, i) : (R)0;
    // Without weight decay the parameter is not read: infinity times zero would be NaN.
    if (e.decay != 0) g += e.decay * p;
    rule(&p, g, &a, &b, &c, &e);
    STORE_T(param, i, p);
    if (HAS(0)) STORE_T(state0, i, a);
    if (HAS(1)) STORE_T(state1, i, b);
    if (HAS(2)) STORE_T(state2, i, c);
}
