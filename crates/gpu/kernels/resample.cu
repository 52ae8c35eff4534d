// Resizing of planes. SAMPLING is 0 (nearest), 1 (linear) or 2 (cubic), TAPS the number of inputs of an output along a
// dimension. Positions are rounded to T at each step, as rushlight_core::backend::ResampleAxis computes them.

struct Axis { u64 input; u64 output; double ratio; u32 aligned; };
struct Axes { Axis axis[3]; double shift; };

__device__ inline float product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double product(double a, double b) { return __dmul_rn(a, b); }

// The input positions and weights of an output.
__device__ inline void taps(const Axis& axis, double shift, u64 i, i64 (&places)[TAPS], T (&weights)[TAPS]) {
    i64 last = (i64)axis.input - 1;
    if (SAMPLING == 0) {
        i64 place = (i64)floorf(__fmul_rn((float)i + (float)shift, (float)axis.ratio));
        places[0] = place < last ? place : last;
        weights[0] = 1;
        return;
    }
    T ratio = (T)axis.ratio;
    T at = axis.aligned ? product(ratio, (T)i) : product(ratio, (T)i + (T)0.5) - (T)0.5;
    if (SAMPLING == 1) {
        if (at < 0) at = 0;
        i64 first = (i64)at < last ? (i64)at : last;
        T weight = at - (T)first;
        weight = weight < 0 ? (T)0 : weight > 1 ? (T)1 : weight;
        places[0] = first;
        weights[0] = (T)(1.0 - weight);
        if (TAPS > 1) places[TAPS > 1] = first < last ? first + 1 : last, weights[TAPS > 1] = weight;
        return;
    }
    const double a = -0.75;
    double below = floor((double)at), t = (double)(T)((double)at - below);
    for (int k = 0; k < TAPS; k++) {
        double d = k == 0 ? t + 1 : k == 1 ? t : k == 2 ? 1 - t : 2 - t;
        bool near = k == 1 || k == 2;
        i64 place = (i64)below + k - 1;
        places[k] = place < 0 ? 0 : place > last ? last : place;
        weights[k] = (T)(near ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a);
    }
}

// The outputs that may have an input among their taps: from `first` up to and including `last`. The outermost inputs
// are also those of outputs beyond the plane's edge.
__device__ inline void touched(const Axis& axis, u64 j, i64& first, i64& last) {
    double reach = TAPS / 2 + 1, scale = axis.ratio > 0 ? 1 / axis.ratio : (double)axis.output;
    double low = ((double)j - reach) * scale - 1, high = ((double)j + 1 + reach) * scale + 1;
    first = j == 0 || low < 0 ? 0 : (i64)low;
    last = j + 1 == axis.input || high > (double)(axis.output - 1) ? (i64)axis.output - 1 : (i64)high;
}

extern "C" __global__ void resample(Axes axes, const T* x, T* y, u64 count) {
    u64 n = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (n >= count) return;
    u64 place[3], plane = n;
    for (int d = 2; d >= 0; d--) {
        u64 size = axes.axis[d].output, whole = size == 1 ? plane : quotient(plane, size);
        place[d] = plane - whole * size;
        plane = whole;
    }
    i64 a[TAPS], b[TAPS], c[TAPS];
    T u[TAPS], v[TAPS], w[TAPS];
    taps(axes.axis[0], axes.shift, place[0], a, u);
    taps(axes.axis[1], axes.shift, place[1], b, v);
    taps(axes.axis[2], axes.shift, place[2], c, w);
    // A dimension of size one has one tap that counts.
    int outer = axes.axis[0].input == 1 ? 1 : TAPS, middle = axes.axis[1].input == 1 ? 1 : TAPS;
    T sum = 0;
    for (int l = 0; l < outer; l++) {
        T part = 0;
        for (int m = 0; m < middle; m++) {
            const T* row = x + ((plane * axes.axis[0].input + a[l]) * axes.axis[1].input + b[m]) * axes.axis[2].input;
            T line = 0;
#pragma unroll
            for (int q = 0; q < TAPS; q++) line += w[q] * row[c[q]];
            part += (middle == 1 ? (T)1 : v[m]) * line;
        }
        sum += (outer == 1 ? (T)1 : u[l]) * part;
    }
    y[n] = sum;
}

// The weight of an input in an output.
__device__ inline T weight_of(const Axis& axis, double shift, i64 i, u64 j) {
    i64 places[TAPS];
    T weights[TAPS], sum = 0;
    taps(axis, shift, (u64)i, places, weights);
#pragma unroll
    for (int k = 0; k < TAPS; k++)
        if (places[k] == (i64)j) sum += weights[k];
    return sum;
}

// A thread sums up the gradients of the outputs that its input has a weight in.
extern "C" __global__ void resample_backward(Axes axes, const T* dy, T* dx, u64 count) {
    u64 n = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (n >= count) return;
    u64 place[3], rest = n;
    i64 first[3], last[3];
    for (int d = 2; d >= 0; d--) {
        u64 size = axes.axis[d].input, whole = quotient(rest, size);
        place[d] = rest - whole * size;
        rest = whole;
        touched(axes.axis[d], place[d], first[d], last[d]);
    }
    T sum = 0;
    for (i64 i = first[0]; i <= last[0]; i++) {
        T u = weight_of(axes.axis[0], axes.shift, i, place[0]);
        if (u == 0) continue;
        for (i64 j = first[1]; j <= last[1]; j++) {
            T v = weight_of(axes.axis[1], axes.shift, j, place[1]);
            if (v == 0) continue;
            const T* row = dy + ((rest * axes.axis[0].output + i) * axes.axis[1].output + j) * axes.axis[2].output;
            for (i64 k = first[2]; k <= last[2]; k++) sum += u * v * weight_of(axes.axis[2], axes.shift, k, place[2]) * row[k];
        }
    }
    dx[n] = sum;
}
