// Pooling over planes of [height, width], row-major or with the channels innermost (LAST). Gradients are gathered
// per input position, so that no two threads add to the same place.

// Positions have 64 bits only if needed.
#ifdef WIDE
typedef i64 num;
#else
typedef i32 num;
#endif

struct Axis { num input, output, kernel, stride, padding, dilation; };
struct Window { Axis y, x; idx planes; num divisor, channels; u32 include_pad; };

// The range of taps of output o that are inside the input; tap t reads position o * stride - padding + t * dilation.
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

// Number of positions that the average of output o counts along an axis.
__device__ inline num counted(const Window& w, const Axis& a, num o) {
    num first, last, start;
    taps(a, o, first, last, start);
    if (ADAPTIVE || !w.include_pad) return last > first ? last - first : 0;
    // A window may extend beyond the padding; that part does not count.
    num room = a.input + 2 * a.padding - o * a.stride;
    return a.kernel < room ? a.kernel : room;
}

__device__ inline W divisor(const Window& w, num oy, num ox) {
    return (W)(w.divisor ? w.divisor : counted(w, w.y, oy) * counted(w, w.x, ox));
}

typedef Vec<T, LANES> V;
#define EACH_LANE _Pragma("unroll") for (int l = 0; l < LANES; l++)

// A thread has LANES neighbours: with the channels innermost (LAST) channels of one pixel, else one pixel. `base` is
// the start of its first channel's image in a tensor of `size` pixels per image, APART the distance of neighbouring
// pixels.
#if LAST
#define APART ((idx)w.channels)
#define PIXEL(height, width, py, px)                                            \
    idx i = (blockIdx.x * (idx)blockDim.x + threadIdx.x) * LANES;               \
    if (i >= w.planes * (idx)((height) * (width))) return;                      \
    idx channel = i % (idx)w.channels, pixel = i / (idx)w.channels;             \
    num px = (num)(pixel % (idx)(width)), py = (num)(pixel / (idx)(width) % (idx)(height)); \
    idx image = pixel / (idx)((height) * (width));
#define BASE(size) (image * (idx)(size) * (idx)w.channels + channel)
#else
#define APART ((idx)1)
#define PIXEL(height, width, py, px)                                            \
    idx i = blockIdx.x * (idx)blockDim.x + threadIdx.x;                         \
    if (i >= w.planes * (idx)((height) * (width))) return;                      \
    num px = (num)(i % (idx)(width)), py = (num)(i / (idx)(width) % (idx)(height)); \
    idx plane = i / (idx)((height) * (width));
#define BASE(size) (plane * (idx)(size))
#endif

#define OUTPUT                                                                  \
    PIXEL(w.y.output, w.x.output, oy, ox)                                       \
    num y0, y1, ys, x0, x1, xs;                                                 \
    taps(w.y, oy, y0, y1, ys);                                                  \
    taps(w.x, ox, x0, x1, xs);                                                  \
    idx base = BASE(w.y.input * w.x.input);

#define INPUT                                                                   \
    PIXEL(w.y.input, w.x.input, iy, ix)                                         \
    idx base = BASE(w.y.output * w.x.output);

__device__ inline V load(const T* from) { return *(const V*)from; }

#if ADAPTIVE
// Outputs whose windows cover position i: consecutive ones from `first` on.
#define COVERING(a, i, o)                                                       \
    for (num o = (i) * (a).output / (a).input, o##_end = (((i) + 1) * (a).output + (a).input - 1) / (a).input; o < o##_end; o++)
#elif DILATED
#define COVERING(a, i, o)                                                       \
    for (num o##_tap = (a).kernel - 1, o = 0; o##_tap >= 0; o##_tap--)          \
        if (o = (i) + (a).padding - o##_tap * (a).dilation, o >= 0 && o % (a).stride == 0 && (o /= (a).stride) < (a).output)
#else
__device__ inline num first_covering(const Axis& a, num i) {
    num behind = i + a.padding - a.kernel + 1;
    return behind <= 0 ? 0 : (behind + a.stride - 1) / a.stride;
}
#define COVERING(a, i, o)                                                       \
    for (num o = first_covering(a, i), o##_end = (i) + (a).padding; o < (a).output && o * (a).stride <= o##_end; o++)
#endif

extern "C" __global__ void max_pool(Window w, const T* x, T* y, i64* indices) {
    OUTPUT
    W best[LANES];
    num at[LANES];
    EACH_LANE best[l] = (W)-INFINITY, at[l] = -1;
    for (num ty = y0; ty < y1; ty++) {
        for (num tx = x0; tx < x1; tx++) {
            num place = (ys + ty * STEP(w.y)) * w.x.input + xs + tx * STEP(w.x);
            V one = load(x + base + (idx)place * APART);
            EACH_LANE {
                W v = convert<W>(one.v[l]);
                if (at[l] < 0 || v > best[l] || (v != v && best[l] == best[l])) best[l] = v, at[l] = place;
            }
        }
    }
    V out;
    EACH_LANE out.v[l] = convert<T>(best[l]);
    *(V*)(y + i) = out;
#if LANES > 1
#pragma unroll
    for (int l = 0; l < LANES; l += 2) *(Vec<i64, 2>*)(indices + i + l) = Vec<i64, 2>{{at[l], at[l + 1]}};
#else
    indices[i] = at[0];
#endif
}

extern "C" __global__ void max_pool_backward(Window w, const T* dy, const i64* indices, T* dx) {
    INPUT
    num here = iy * w.x.input + ix;
    W sum[LANES];
    EACH_LANE sum[l] = 0;
    COVERING(w.y, iy, oy) {
        COVERING(w.x, ix, ox) {
            idx o = base + (idx)(oy * w.x.output + ox) * APART;
            V one = load(dy + o);
#if LANES > 1
#pragma unroll
            for (int l = 0; l < LANES; l += 2) {
                Vec<i64, 2> from = *(const Vec<i64, 2>*)(indices + o + l);
                if ((num)from.v[0] == here) sum[l] += convert<W>(one.v[l]);
                if ((num)from.v[1] == here) sum[l + 1] += convert<W>(one.v[l + 1]);
            }
#else
            if ((num)indices[o] == here) sum[0] += convert<W>(one.v[0]);
#endif
        }
    }
    V out;
    EACH_LANE out.v[l] = convert<T>(sum[l]);
    *(V*)(dx + i) = out;
}

extern "C" __global__ void avg_pool(Window w, const T* x, T* y) {
    OUTPUT
    W sum[LANES];
    EACH_LANE sum[l] = 0;
    for (num ty = y0; ty < y1; ty++)
        for (num tx = x0; tx < x1; tx++) {
            V one = load(x + base + (idx)((ys + ty * STEP(w.y)) * w.x.input + xs + tx * STEP(w.x)) * APART);
            EACH_LANE sum[l] += convert<W>(one.v[l]);
        }
    V out;
    W by = divisor(w, oy, ox);
    EACH_LANE out.v[l] = convert<T>(sum[l] / by);
    *(V*)(y + i) = out;
}

extern "C" __global__ void avg_pool_backward(Window w, const T* dy, T* dx) {
    INPUT
    W sum[LANES];
    EACH_LANE sum[l] = 0;
    COVERING(w.y, iy, oy) {
        COVERING(w.x, ix, ox) {
            V one = load(dy + base + (idx)(oy * w.x.output + ox) * APART);
            W by = divisor(w, oy, ox);
            EACH_LANE sum[l] += convert<W>(one.v[l]) / by;
        }
    }
    V out;
    EACH_LANE out.v[l] = convert<T>(sum[l]);
    *(V*)(dx + i) = out;
}
