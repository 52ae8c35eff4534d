// Convolutions: im2col and col2im around a matrix product, and direct kernels for groups.

struct Conv { u64 batch, in_channels, out_channels, groups; i64 input[3], kernel[3], output[3], stride[3], padding[3], dilation[3]; };

__device__ inline u64 volume(const i64 (&d)[3]) { return (u64)(d[0] * d[1] * d[2]); }

__device__ inline void coordinates(u64 i, const i64 (&sizes)[3], i64 (&at)[3]) {
    at[2] = (i64)(i % (u64)sizes[2]);
    at[1] = (i64)(i / (u64)sizes[2] % (u64)sizes[1]);
    at[0] = (i64)(i / (u64)(sizes[2] * sizes[1]));
}

// The input position that tap k of output o reads along each dimension; false in the padding.
__device__ inline bool source(const Conv& c, const i64 (&o)[3], const i64 (&k)[3], u64& at) {
    u64 place = 0;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        i64 p = o[d] * c.stride[d] - c.padding[d] + k[d] * c.dilation[d];
        if (p < 0 || p >= c.input[d]) return false;
        place = place * (u64)c.input[d] + (u64)p;
    }
    at = place;
    return true;
}

// The output that reads input i with tap k; false if none.
__device__ inline bool target(const Conv& c, const i64 (&i)[3], const i64 (&k)[3], u64& at) {
    u64 place = 0;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        i64 p = i[d] + c.padding[d] - k[d] * c.dilation[d];
        if (p < 0 || p % c.stride[d] != 0) return false;
        p /= c.stride[d];
        if (p >= c.output[d]) return false;
        place = place * (u64)c.output[d] + (u64)p;
    }
    at = place;
    return true;
}

#ifdef UNFOLD
// columns[n, r, l] = the pixel that row r (channel, tap) of output l of image n reads.
extern "C" __global__ void unfold(Conv c, const T* x, T* columns, u64 images, u64 image_step, u64 row_step) {
    u64 taps = volume(c.kernel), pixels = volume(c.output), rows = c.in_channels * taps;
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= images * rows * pixels) return;
    u64 l = i % pixels, r = i / pixels % rows, n = i / (pixels * rows);
    i64 o[3], k[3];
    coordinates(l, c.output, o);
    coordinates(r % taps, c.kernel, k);
    u64 at;
    T v = convert<T>(0);
    if (source(c, o, k, at)) v = x[(n * c.in_channels + r / taps) * volume(c.input) + at];
    columns[n * image_step + r * row_step + l] = v;
}

// The reverse: dx[n, channel, i] is the sum over all taps. Half types are rounded only here.
extern "C" __global__ void fold(Conv c, const W* columns, T* dx, u64 images, u64 image_step, u64 row_step) {
    u64 taps = volume(c.kernel), pixels = volume(c.input);
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= images * c.in_channels * pixels) return;
    u64 channel = i / pixels % c.in_channels, n = i / (pixels * c.in_channels);
    i64 in[3], k[3];
    coordinates(i % pixels, c.input, in);
    W sum = 0;
    for (u64 t = 0; t < taps; t++) {
        coordinates(t, c.kernel, k);
        u64 at;
        if (target(c, in, k, at)) sum += columns[n * image_step + (channel * taps + t) * row_step + at];
    }
    dx[i] = convert<T>(sum);
}
#endif

#ifdef BIAS
extern "C" __global__ void conv_bias(T* y, const T* bias, u64 channels, u64 pixels, u64 count) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i < count) y[i] = convert<T>(convert<W>(y[i]) + convert<W>(bias[i / pixels % channels]));
}
#endif

#ifdef DIRECT
// One thread per output, input or weight: for groups, whose matrices are too small for a matrix product.
extern "C" __global__ void conv_direct(Conv c, const T* x, const T* w, T* y) {
    u64 pixels = volume(c.output), taps = volume(c.kernel);
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= c.batch * c.out_channels * pixels) return;
    u64 channel = i / pixels % c.out_channels, n = i / (pixels * c.out_channels);
    u64 ins = c.in_channels / c.groups, group = channel / (c.out_channels / c.groups);
    i64 o[3], k[3];
    coordinates(i % pixels, c.output, o);
    W sum = 0;
    for (u64 t = 0; t < taps; t++) {
        coordinates(t, c.kernel, k);
        u64 at;
        if (!source(c, o, k, at)) continue;
        for (u64 j = 0; j < ins; j++)
            sum += convert<W>(x[(n * c.in_channels + group * ins + j) * volume(c.input) + at]) * convert<W>(w[(channel * ins + j) * taps + t]);
    }
    y[i] = convert<T>(sum);
}

extern "C" __global__ void conv_direct_input(Conv c, const T* dy, const T* w, T* dx) {
    u64 pixels = volume(c.input), taps = volume(c.kernel);
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= c.batch * c.in_channels * pixels) return;
    u64 channel = i / pixels % c.in_channels, n = i / (pixels * c.in_channels);
    u64 ins = c.in_channels / c.groups, outs = c.out_channels / c.groups, group = channel / ins;
    i64 in[3], k[3];
    coordinates(i % pixels, c.input, in);
    W sum = 0;
    for (u64 t = 0; t < taps; t++) {
        coordinates(t, c.kernel, k);
        u64 at;
        if (!target(c, in, k, at)) continue;
        for (u64 j = group * outs; j < (group + 1) * outs; j++)
            sum += convert<W>(dy[(n * c.out_channels + j) * volume(c.output) + at]) * convert<W>(w[(j * ins + channel % ins) * taps + t]);
    }
    dx[i] = convert<T>(sum);
}

// One block per weight; its threads split the images and pixels.
extern "C" __global__ void __launch_bounds__(256) conv_direct_weight(Conv c, const T* x, const T* dy, T* dw) {
    __shared__ W shared[32];
    u64 taps = volume(c.kernel), pixels = volume(c.output), ins = c.in_channels / c.groups;
    u64 i = blockIdx.x, t = i % taps, j = i / taps % ins, channel = i / (taps * ins);
    u64 from = channel / (c.out_channels / c.groups) * ins + j;
    i64 o[3], k[3];
    coordinates(t, c.kernel, k);
    W sum = 0;
    for (u64 e = threadIdx.x; e < c.batch * pixels; e += 256) {
        u64 n = e / pixels, at;
        coordinates(e % pixels, c.output, o);
        if (source(c, o, k, at))
            sum += convert<W>(x[(n * c.in_channels + from) * volume(c.input) + at]) * convert<W>(dy[(n * c.out_channels + channel) * pixels + e % pixels]);
    }
    sum = group_reduce<Sum, 256>(sum, shared);
    if (threadIdx.x == 0) dw[i] = convert<T>(sum);
}
#endif
