// Pooling over planes of [height, width]. Gradients are gathered by the positions they go to, so that no two threads add to one place.

// Positions have 64 bits only where they must.
#ifdef WIDE
typedef i64 num;
#else
typedef i32 num;
#endif

struct Axis { num input, output, kernel, stride, padding, dilation; };
struct Window { Axis y, x; idx planes; num divisor; u32 include_pad; };

// First tap and one past the last of output o that lie in the input; tap t reads position o * stride - padding + t * dilation.
__device__ inline void taps(const Axis& a, num o, num& first, num& last, num& start) {
#if ADAPTIVE
    start = o * a.input / a.output;
    first = 0;
    last = ((o + 1) * a.input + a.output - 1) / a.output - start;
#else
    start = o * a.stride - a.padding;
    first = start < 0 ? (-start + a.dilation - 1) / a.dilation : 0;
    num room = a.input - start;
    last = room <= 0 ? 0 : (room + a.dilation - 1) / a.dilation;
    last = last < a.kernel ? last : a.kernel;
#endif
}

#if ADAPTIVE
#define STEP(a) 1
#else
#define STEP(a) (a).dilation
#endif

// Positions that an average of output o counts along an axis.
__device__ inline num counted(const Window& w, const Axis& a, num o) {
    num first, last, start;
    taps(a, o, first, last, start);
    if (ADAPTIVE || !w.include_pad) return last > first ? last - first : 0;
    // A window may hang over the padding too, which then does not count.
    num room = a.input + 2 * a.padding - o * a.stride;
    return a.kernel < room ? a.kernel : room;
}

__device__ inline W divisor(const Window& w, num oy, num ox) {
    return (W)(w.divisor ? w.divisor : counted(w, w.y, oy) * counted(w, w.x, ox));
}

#define OUTPUT                                                                  \
    idx i = blockIdx.x * (idx)blockDim.x + threadIdx.x;                         \
    if (i >= w.planes * (idx)(w.y.output * w.x.output)) return;                 \
    num ox = (num)(i % (idx)w.x.output), oy = (num)(i / (idx)w.x.output % (idx)w.y.output); \
    idx plane = i / (idx)(w.x.output * w.y.output);                             \
    num y0, y1, ys, x0, x1, xs;                                                 \
    taps(w.y, oy, y0, y1, ys);                                                  \
    taps(w.x, ox, x0, x1, xs);

#define INPUT                                                                   \
    idx i = blockIdx.x * (idx)blockDim.x + threadIdx.x;                         \
    if (i >= w.planes * (idx)(w.y.input * w.x.input)) return;                   \
    num ix = (num)(i % (idx)w.x.input), iy = (num)(i / (idx)w.x.input % (idx)w.y.input); \
    idx plane = i / (idx)(w.x.input * w.y.input);

#if ADAPTIVE
// Outputs whose windows cover position i: from `first` on, one after the other.
#define COVERING(a, i, o)                                                       \
    for (num o = (i) * (a).output / (a).input, o##_end = (((i) + 1) * (a).output + (a).input - 1) / (a).input; o < o##_end; o++)
#else
#define COVERING(a, i, o)                                                       \
    for (num o##_tap = (a).kernel - 1, o = 0; o##_tap >= 0; o##_tap--)          \
        if (o = (i) + (a).padding - o##_tap * (a).dilation, o >= 0 && o % (a).stride == 0 && (o /= (a).stride) < (a).output)
#endif

extern "C" __global__ void max_pool(Window w, const T* x, T* y, i64* indices) {
    OUTPUT
    const T* from = x + plane * (idx)(w.y.input * w.x.input);
    W best = (W)-INFINITY;
    num at = -1;
    for (num ty = y0; ty < y1; ty++) {
        for (num tx = x0; tx < x1; tx++) {
            num place = (ys + ty * STEP(w.y)) * w.x.input + xs + tx * STEP(w.x);
            W v = convert<W>(from[place]);
            if (at < 0 || v > best || (v != v && best == best)) best = v, at = place;
        }
    }
    y[i] = convert<T>(best);
    indices[i] = at;
}

extern "C" __global__ void max_pool_backward(Window w, const T* dy, const i64* indices, T* dx) {
    INPUT
    idx base = plane * (idx)(w.y.output * w.x.output);
    num here = iy * w.x.input + ix;
    W sum = 0;
    COVERING(w.y, iy, oy) {
        COVERING(w.x, ix, ox) {
            idx o = base + (idx)(oy * w.x.output + ox);
            if ((num)indices[o] == here) sum += convert<W>(dy[o]);
        }
    }
    dx[i] = convert<T>(sum);
}

extern "C" __global__ void avg_pool(Window w, const T* x, T* y) {
    OUTPUT
    const T* from = x + plane * (idx)(w.y.input * w.x.input);
    W sum = 0;
    for (num ty = y0; ty < y1; ty++)
        for (num tx = x0; tx < x1; tx++) sum += convert<W>(from[(ys + ty * STEP(w.y)) * w.x.input + xs + tx * STEP(w.x)]);
    y[i] = convert<T>(sum / divisor(w, oy, ox));
}

extern "C" __global__ void avg_pool_backward(Window w, const T* dy, T* dx) {
    INPUT
    const T* from = dy + plane * (idx)(w.y.output * w.x.output);
    W sum = 0;
    COVERING(w.y, iy, oy) {
        COVERING(w.x, ix, ox) sum += convert<W>(from[oy * w.x.output + ox]) / divisor(w, oy, ox);
    }
    dx[i] = convert<T>(sum);
}
