// Pooling over planes of [height, width]. Gradients are gathered by the positions they go to, so that no two threads add to one place.

struct Axis { i64 input, output, kernel, stride, padding, dilation; };
struct Window { Axis y, x; u64 planes; i64 divisor; u32 include_pad; };

// First tap and one past the last of output o that lie in the input; tap t reads position o * stride - padding + t * dilation.
__device__ inline void taps(const Axis& a, i64 o, i64& first, i64& last, i64& start) {
#if ADAPTIVE
    start = o * a.input / a.output;
    first = 0;
    last = ((o + 1) * a.input + a.output - 1) / a.output - start;
#else
    start = o * a.stride - a.padding;
    first = start < 0 ? (-start + a.dilation - 1) / a.dilation : 0;
    i64 room = a.input - start;
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
__device__ inline i64 counted(const Window& w, const Axis& a, i64 o) {
    i64 first, last, start;
    taps(a, o, first, last, start);
    if (ADAPTIVE || !w.include_pad) return last > first ? last - first : 0;
    // A window may hang over the padding too, which then does not count.
    i64 room = a.input + 2 * a.padding - o * a.stride;
    return a.kernel < room ? a.kernel : room;
}

__device__ inline W divisor(const Window& w, i64 oy, i64 ox) {
    return (W)(w.divisor ? w.divisor : counted(w, w.y, oy) * counted(w, w.x, ox));
}

#define OUTPUT                                                                  \
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;                         \
    if (i >= w.planes * (u64)(w.y.output * w.x.output)) return;                 \
    i64 ox = (i64)(i % (u64)w.x.output), oy = (i64)(i / (u64)w.x.output % (u64)w.y.output); \
    u64 plane = i / (u64)(w.x.output * w.y.output);                             \
    i64 y0, y1, ys, x0, x1, xs;                                                 \
    taps(w.y, oy, y0, y1, ys);                                                  \
    taps(w.x, ox, x0, x1, xs);

#define INPUT                                                                   \
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;                         \
    if (i >= w.planes * (u64)(w.y.input * w.x.input)) return;                   \
    i64 ix = (i64)(i % (u64)w.x.input), iy = (i64)(i / (u64)w.x.input % (u64)w.y.input); \
    u64 plane = i / (u64)(w.x.input * w.y.input);

#if ADAPTIVE
// Outputs whose windows cover position i: from `first` on, one after the other.
#define COVERING(a, i, o)                                                       \
    for (i64 o = (i) * (a).output / (a).input, o##_end = (((i) + 1) * (a).output + (a).input - 1) / (a).input; o < o##_end; o++)
#else
#define COVERING(a, i, o)                                                       \
    for (i64 o##_tap = (a).kernel - 1, o = 0; o##_tap >= 0; o##_tap--)          \
        if (o = (i) + (a).padding - o##_tap * (a).dilation, o >= 0 && o % (a).stride == 0 && (o /= (a).stride) < (a).output)
#endif

extern "C" __global__ void max_pool(Window w, const T* x, T* y, i64* indices) {
    OUTPUT
    const T* from = x + plane * (u64)(w.y.input * w.x.input);
    W best = (W)-INFINITY;
    i64 at = -1;
    for (i64 ty = y0; ty < y1; ty++) {
        for (i64 tx = x0; tx < x1; tx++) {
            i64 place = (ys + ty * STEP(w.y)) * w.x.input + xs + tx * STEP(w.x);
            W v = convert<W>(from[place]);
            if (at < 0 || v > best || (v != v && best == best)) best = v, at = place;
        }
    }
    y[i] = convert<T>(best);
    indices[i] = at;
}

extern "C" __global__ void max_pool_backward(Window w, const T* dy, const i64* indices, T* dx) {
    INPUT
    u64 base = plane * (u64)(w.y.output * w.x.output);
    i64 here = iy * w.x.input + ix;
    W sum = 0;
    COVERING(w.y, iy, oy) {
        COVERING(w.x, ix, ox) {
            u64 o = base + (u64)(oy * w.x.output + ox);
            if (indices[o] == here) sum += convert<W>(dy[o]);
        }
    }
    dx[i] = convert<T>(sum);
}

extern "C" __global__ void avg_pool(Window w, const T* x, T* y) {
    OUTPUT
    const T* from = x + plane * (u64)(w.y.input * w.x.input);
    W sum = 0;
    for (i64 ty = y0; ty < y1; ty++)
        for (i64 tx = x0; tx < x1; tx++) sum += convert<W>(from[(ys + ty * STEP(w.y)) * w.x.input + xs + tx * STEP(w.x)]);
    y[i] = convert<T>(sum / divisor(w, oy, ox));
}

extern "C" __global__ void avg_pool_backward(Window w, const T* dy, T* dx) {
    INPUT
    const T* from = dy + plane * (u64)(w.y.output * w.x.output);
    W sum = 0;
    COVERING(w.y, iy, oy) {
        COVERING(w.x, ix, ox) sum += convert<W>(from[oy * w.x.output + ox]) / divisor(w, oy, ox);
    }
    dx[i] = convert<T>(sum);
}
