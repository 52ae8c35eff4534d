// Depthwise convolutions, one input channel per output channel, of images with their channels innermost. A thread keeps
// V channels of TILE neighbouring columns in registers, so an input column is loaded once for all the taps that read
// it. LANES neighbouring threads have neighbouring channels. The kernel has KH by KW taps; STRIDE and DILATION are
// those of columns. Weights are widened and arranged as [taps][channels] first.
#define COLUMNS ((TILE - 1) * STRIDE + (KW - 1) * DILATION + 1)
typedef Vec<T, V> Elements;
typedef Vec<W, V> Wide;

// Sizes of input and output images, the padding of the input, and stride and dilation of rows, then of columns.
struct Plane { u32 channels, height, width, out_height, out_width; i32 above, left; u32 stride[2], dilation[2]; };

// The widened elements at `from`, or zeros if they are in the padding.
__device__ inline void load(W (&to)[V], const T* from, bool inside) {
    if (inside) {
        Elements x = *(const Elements*)from;
#pragma unroll
        for (int v = 0; v < V; v++) to[v] = convert<W>(x.v[v]);
    } else {
#pragma unroll
        for (int v = 0; v < V; v++) to[v] = 0;
    }
}

#ifdef ARRANGE
extern "C" __global__ void depthwise_arrange(const T* w, W* to, u32 channels, u32 taps, u32 flipped) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= channels * taps) return;
    u32 tap = i / channels, c = i % channels;
    to[i] = convert<W>(w[(u64)c * taps + (flipped ? taps - 1 - tap : tap)]);
}
#endif

#ifdef CORRELATE
// `rows` are the output rows of all images.
extern "C" __global__ void __launch_bounds__(256) depthwise(Plane p, const T* x, const W* w, const T* bias, T* y, u64 rows) {
    u32 chunks = (p.channels / V + LANES - 1) / LANES, tiles = (p.out_width + TILE - 1) / TILE;
    u32 rest = blockIdx.x / chunks, c = (blockIdx.x % chunks * LANES + threadIdx.x % LANES) * V;
    u64 row = (u64)(rest / tiles) * (256 / LANES) + threadIdx.x / LANES;
    if (c >= p.channels || row >= rows) return;
    u32 column = rest % tiles * TILE, oh = (u32)(row % p.out_height);
    const T* image = x + row / p.out_height * p.height * p.width * p.channels + c;
    i32 first = (i32)(column * STRIDE) - p.left;
    W acc[TILE][V];
    W start[V];
    load(start, bias + c, bias != 0);
#pragma unroll
    for (int t = 0; t < TILE; t++) {
#pragma unroll
        for (int v = 0; v < V; v++) acc[t][v] = start[v];
    }
#pragma unroll 1
    for (u32 ky = 0; ky < KH; ky++) {
        u32 r = oh * p.stride[0] + ky * p.dilation[0] - (u32)p.above;
        if (r >= p.height) continue;
        const T* from = image + (u64)r * p.width * p.channels;
        W in[COLUMNS][V];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) load(in[j], from + (i64)(first + j) * p.channels, (u32)(first + j) < p.width);
#pragma unroll
        for (int kx = 0; kx < KW; kx++) {
            Wide by = *(const Wide*)(w + (u64)(ky * KW + kx) * p.channels + c);
#pragma unroll
            for (int t = 0; t < TILE; t++) {
#pragma unroll
                for (int v = 0; v < V; v++) acc[t][v] += in[t * STRIDE + kx * DILATION][v] * by.v[v];
            }
        }
    }
    T* to = y + (row * p.out_width + column) * p.channels + c;
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        if (column + t >= p.out_width) break;
        Elements out;
#pragma unroll
        for (int v = 0; v < V; v++) out.v[v] = convert<T>(acc[t][v]);
        *(Elements*)(to + t * p.channels) = out;
    }
}
#endif

#ifdef SPREAD
// The gradient by the input where columns or rows are strided: the plane's input is the output's gradient. A thread has
// V channels of a pixel.
extern "C" __global__ void __launch_bounds__(256) depthwise_spread(Plane p, const T* dy, const W* w, T* dx, u64 count) {
    u64 i = blockIdx.x * (u64)256 + threadIdx.x;
    if (i >= count) return;
    u32 vectors = p.channels / V, c = (u32)(i % vectors) * V;
    u64 pixel = i / vectors, n = pixel / p.out_width / p.out_height;
    u32 column = (u32)(pixel % p.out_width), row = (u32)(pixel / p.out_width % p.out_height);
    const T* image = dy + n * p.height * p.width * p.channels + c;
    W acc[V];
#pragma unroll
    for (int v = 0; v < V; v++) acc[v] = 0;
#pragma unroll 1
    for (u32 ky = 0; ky < KH; ky++) {
        i32 r = (i32)row + p.above - (i32)(ky * p.dilation[0]);
        if (r < 0 || r % (i32)p.stride[0] != 0 || r / (i32)p.stride[0] >= (i32)p.height) continue;
        const T* from = image + (u64)(r / (i32)p.stride[0]) * p.width * p.channels;
#pragma unroll
        for (u32 kx = 0; kx < KW; kx++) {
            i32 k = (i32)column + p.left - (i32)(kx * DILATION);
            if (k < 0 || k % STRIDE != 0 || k / STRIDE >= (i32)p.width) continue;
            W in[V];
            load(in, from + (u64)(k / STRIDE) * p.channels, true);
            Wide by = *(const Wide*)(w + (u64)(ky * KW + kx) * p.channels + c);
#pragma unroll
            for (int v = 0; v < V; v++) acc[v] += in[v] * by.v[v];
        }
    }
    Elements out;
#pragma unroll
    for (int v = 0; v < V; v++) out.v[v] = convert<T>(acc[v]);
    *(Elements*)(dx + pixel * p.channels + c) = out;
}
#endif

#ifdef WEIGHT
// The gradient by the weight over every `splits`-th output row: a line of sums [taps][channels] per split. LANES
// threads have a row of taps.
extern "C" __global__ void __launch_bounds__(LANES * KH) depthwise_weight(Plane p, const T* x, const T* dy, W* partial, u64 rows, u32 splits) {
    u32 chunks = (p.channels / V + LANES - 1) / LANES, split = blockIdx.x / chunks, ky = threadIdx.x / LANES;
    u32 c = (blockIdx.x % chunks * LANES + threadIdx.x % LANES) * V;
    if (c >= p.channels) return;
    W acc[KW][V];
#pragma unroll
    for (int kx = 0; kx < KW; kx++) {
#pragma unroll
        for (int v = 0; v < V; v++) acc[kx][v] = 0;
    }
    for (u64 row = split; row < rows; row += splits) {
        u32 r = (u32)(row % p.out_height) * p.stride[0] + ky * p.dilation[0] - (u32)p.above;
        if (r >= p.height) continue;
        const T* from = x + (row / p.out_height * p.height + r) * p.width * p.channels + c;
        const T* grads = dy + row * p.out_width * p.channels + c;
#pragma unroll 1
        for (u32 column = 0; column < p.out_width; column += TILE) {
            i32 first = (i32)(column * STRIDE) - p.left;
            W in[COLUMNS][V], grad[TILE][V];
#pragma unroll
            for (int t = 0; t < TILE; t++) load(grad[t], grads + (u64)(column + t) * p.channels, column + t < p.out_width);
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) load(in[j], from + (i64)(first + j) * p.channels, (u32)(first + j) < p.width);
#pragma unroll
            for (int kx = 0; kx < KW; kx++) {
#pragma unroll
                for (int t = 0; t < TILE; t++) {
#pragma unroll
                    for (int v = 0; v < V; v++) acc[kx][v] += in[t * STRIDE + kx * DILATION][v] * grad[t][v];
                }
            }
        }
    }
#pragma unroll
    for (int kx = 0; kx < KW; kx++) {
        Wide sum;
#pragma unroll
        for (int v = 0; v < V; v++) sum.v[v] = acc[kx][v];
        *(Wide*)(partial + ((u64)split * KH * KW + ky * KW + kx) * p.channels + c) = sum;
    }
}

// Adds the lines in order: 32 weights of a tap by 32 threads each.
extern "C" __global__ void __launch_bounds__(1024) depthwise_join(const W* partial, T* dw, u32 channels, u32 splits) {
    __shared__ W sums[32][33];
    u32 lane = threadIdx.x % 32, part = threadIdx.x / 32, i = blockIdx.x * 32 + lane, count = channels * KH * KW;
    W sum = 0;
    if (i < count) {
#pragma unroll 8
        for (u32 split = part; split < splits; split += 32) sum += partial[(u64)split * count + i];
    }
    sums[part][lane] = sum;
    __syncthreads();
    // One warp sums a weight.
    sum = group_reduce<Sum, 32>(sums[lane][part], (W*)0);
    i = blockIdx.x * 32 + part;
    if (lane == 0 && i < count) dw[(u64)(i % channels) * (KH * KW) + i / channels] = convert<T>(sum);
}
#endif
