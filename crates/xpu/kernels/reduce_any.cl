// Reductions of small tensors: the reduction and the dtypes are run-time arguments. A work item folds all elements of
// an output in order.
//
// W is R: float, double or long. The codes of reductions are those of reduce.cl; P is the type of parameters.

typedef NEST(2) Kept;
typedef NEST(1) Reduced;

#if R_KIND == 2
#define LOWEST LONG_MIN
#define HIGHEST LONG_MAX
#else
#define LOWEST ((R)-INFINITY)
#define HIGHEST ((R)INFINITY)
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void reduce_any(const Kept kept, const Reduced reduced, const __global uchar* x, __global uchar* out,
                __global long* indices, const ulong outputs, const ulong length, const P first_param,
                const P second_param, const uint code, const uint x_code, const uint out_code, const uint mode) {
    const ulong output = get_global_id(0);
    if (output >= outputs) return;
    long at[2] = {0, 0};
    NEST_OFFSETS(kept, 2, output, 0, at);
    const int largest = code == 3 || code == 11 || code == 17, smallest = code == 4 || code == 12 || code == 18;
    // The accumulator; the mean and the squares of a variance, the largest of exponentials; the index.
    R a = code == 2 || code == 6 ? (R)1 : largest || code == 14 ? LOWEST : smallest ? HIGHEST : (R)0;
    R b = 0, some = 0;
    long index = -1;
    for (ulong e = 0; e < length; e++) {
        long place[1] = {0};
        NEST_OFFSETS(reduced, 1, e, 0, place);
        R v = load_any(x, x_code, at[0] + place[0], mode);
#if R_KIND != 2
        if (code == 9 || code == 11 || code == 12) v = fabs(v);
        else if (code == 10 || code == 15) v = v * v;
        else if (code == 8) v = v != 0;
        else if (code == 13) v = pow(fabs(v), (R)first_param);
#endif
        if (code >= 17) {
            if (index < 0 || (largest ? v > a : v < a) || (v != v && a == a)) {
                a = v;
                index = (long)e;
            }
        } else if (largest) a = a >= v || a != a ? a : v;
        else if (smallest) a = a <= v || a != a ? a : v;
        else if (code == 2) a *= v;
        else if (code == 5) a = a != 0 || v != 0;
        else if (code == 6) a = a != 0 && v != 0;
#if R_KIND != 2
        else if (code == 7) {
            const R d = v - a;
            a += d / (R)(e + 1);
            b += d * (v - a);
        } else if (code == 14) {
            if (v == a) b += 1;
            else if (v > a || v != v) {
                b = b * exp(a - v) + 1;
                a = v;
            } else b += exp(v - a);
        }
#endif
        else {
            // Adds short sums in turn: a long sum loses digits.
            some += v;
            if (e % 128 == 127) {
                a += some;
                some = 0;
            }
        }
    }
    if (some != 0) a += some;
#if R_KIND != 2
    if (code == 1) a = a / (R)second_param;
    else if (code == 7) a = b / (R)second_param;
    else if (code == 10) a = sqrt(a);
    else if (code == 13) a = pow(a, (R)second_param);
    else if (code == 14) a = a + log(b);
#endif
    store_any(out, out_code, at[1], a);
    if (code >= 17) indices[at[1]] = index;
}
