// Convolutions of few channels over small images with stride one. An image and the weights are in shared memory; a
// thread computes all channels of its pixels (or all output channels of its taps) in registers. CI and CO are the
// numbers of input and output channels; the kernel has KH by KW taps.

#define PIXELS 2  // pixels per thread and pass; they share each weight load
#define CO4 ((CO + 3) / 4 * 4)
#define TAPS (CI * KH * KW)
typedef Vec<W, 4> Four;

// Sizes of input and output images, and the padding of the input.
struct Plane { u32 height, width, out_height, out_width, above, left; };

// Copies an image with its zero padding.
__device__ inline void load_image(W* tile, const T* x, const Plane& p, u32 rows, u32 columns) {
    for (u32 i = threadIdx.x; i < CI * rows * columns; i += blockDim.x) {
        u32 c = i / (rows * columns), r = i / columns % rows - p.above, column = i % columns - p.left;
        tile[i] = r < p.height && column < p.width ? convert<W>(x[(c * p.height + r) * p.width + column]) : (W)0;
    }
}

#ifdef CORRELATE
// One image. FLIPPED: the gradient by the input, which convolves the output's gradient with the weights, taps reversed
// and channels exchanged.
extern "C" __global__ void conv_few(Plane p, const T* x, const T* w, const T* bias, T* y) {
    extern __shared__ double memory[];
    Four* weights = (Four*)memory;  // [TAPS][CO4]
    W* tile = (W*)(weights + TAPS * CO4 / 4);
    u32 rows = p.out_height + KH - 1, columns = p.out_width + KW - 1, pixels = p.out_height * p.out_width;
    x += blockIdx.x * (u64)(CI * p.height * p.width);
    y += blockIdx.x * (u64)(CO * pixels);
    load_image(tile, x, p, rows, columns);
    for (u32 i = threadIdx.x; i < TAPS * CO4; i += blockDim.x) {
        u32 t = i / CO4, o = i % CO4, c = t / (KH * KW), k = t % (KH * KW);
        u32 from = FLIPPED ? (c * CO + o) * KH * KW + (KH * KW - 1 - k) : (o * CI + c) * KH * KW + k;
        ((W*)weights)[i] = o < CO ? convert<W>(w[from]) : (W)0;
    }
    __syncthreads();
    for (u32 first = threadIdx.x; first < pixels; first += PIXELS * blockDim.x) {
        W acc[PIXELS][CO4];
        const W* at[PIXELS];
#pragma unroll
        for (int n = 0; n < PIXELS; n++) {
            u32 i = first + n * blockDim.x;
            if (i >= pixels) i = first;
            at[n] = tile + i / p.out_width * columns + i % p.out_width;
#pragma unroll
            for (int o = 0; o < CO4; o++) acc[n][o] = bias && o < CO ? convert<W>(bias[o]) : (W)0;
        }
#pragma unroll 1
        for (int c = 0; c < CI; c++) {
#pragma unroll 1
            for (int ky = 0; ky < KH; ky++) {
#pragma unroll
                for (int kx = 0; kx < KW; kx++) {
                    W v[PIXELS];
#pragma unroll
                    for (int n = 0; n < PIXELS; n++) v[n] = at[n][(c * rows + ky) * columns + kx];
#pragma unroll
                    for (int o = 0; o < CO4 / 4; o++) {
                        Four four = weights[((c * KH + ky) * KW + kx) * (CO4 / 4) + o];
#pragma unroll
                        for (int e = 0; e < 4; e++) {
#pragma unroll
                            for (int n = 0; n < PIXELS; n++) acc[n][o * 4 + e] += v[n] * four.v[e];
                        }
                    }
                }
            }
        }
#pragma unroll
        for (int n = 0; n < PIXELS; n++) {
            u32 i = first + n * blockDim.x;
            if (i >= pixels) break;
#pragma unroll
            for (int o = 0; o < CO; o++) y[o * pixels + i] = convert<T>(acc[n][o]);
        }
    }
}
#endif

#ifdef WEIGHT
// The gradient by the weight over every gridDim.x-th image: one line of partial sums [CO][TAPS] per block. SLICES
// threads split a tap's rows.
extern "C" __global__ void __launch_bounds__(SLICES * TAPS) conv_few_weight(Plane p, const T* x, const T* dy, W* partial, u32 batch) {
    extern __shared__ double memory[];
    u32 rows = p.out_height + KH - 1, columns = p.out_width + KW - 1, pixels = p.out_height * p.out_width;
    Four* grads = (Four*)memory;  // [pixels][CO4]
    W* tile = (W*)(grads + pixels * CO4 / 4);
    u32 tap = threadIdx.x % TAPS, slice = threadIdx.x / TAPS;
    u32 c = tap / (KH * KW), ky = tap / KW % KH, kx = tap % KW;
    W acc[CO4];
#pragma unroll
    for (int o = 0; o < CO4; o++) acc[o] = 0;
    for (u32 n = blockIdx.x; n < batch; n += gridDim.x) {
        __syncthreads();
        load_image(tile, x + n * (u64)(CI * p.height * p.width), p, rows, columns);
        const T* from = dy + n * (u64)(CO * pixels);
        for (u32 i = threadIdx.x; i < CO4 * pixels; i += blockDim.x) {
            u32 o = i / pixels, at = i % pixels;
            ((W*)grads)[at * CO4 + o] = o < CO ? convert<W>(from[i]) : (W)0;
        }
        __syncthreads();
        for (u32 r = slice; r < p.out_height; r += SLICES) {
            const W* line = tile + (c * rows + r + ky) * columns + kx;
            const Four* line_grads = grads + r * p.out_width * (CO4 / 4);
#pragma unroll 4
            for (u32 column = 0; column < p.out_width; column++) {
                W v = line[column];
#pragma unroll
                for (int o = 0; o < CO4 / 4; o++) {
                    Four four = line_grads[column * (CO4 / 4) + o];
#pragma unroll
                    for (int e = 0; e < 4; e++) acc[o * 4 + e] += v * four.v[e];
                }
            }
        }
    }
    // Adds the slices in order.
    W* sums = (W*)memory;
    __syncthreads();
#pragma unroll
    for (int o = 0; o < CO; o++) sums[(slice * CO + o) * TAPS + tap] = acc[o];
    __syncthreads();
    for (u32 i = threadIdx.x; i < CO * TAPS; i += blockDim.x) {
        W sum = sums[i];
        for (int s = 1; s < SLICES; s++) sum += sums[s * CO * TAPS + i];
        partial[blockIdx.x * (u64)(CO * TAPS) + i] = sum;
    }
}

// Adds the lines: 32 weights by 8 threads each.
extern "C" __global__ void conv_few_join(const W* partial, T* dw, u32 lines) {
    __shared__ W sums[8][33];
    u32 i = blockIdx.x * 32 + threadIdx.x;
    W sum = 0;
    if (i < CO * TAPS) {
#pragma unroll 8
        for (u32 line = threadIdx.y; line < lines; line += 8) sum += partial[line * (CO * TAPS) + i];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && i < CO * TAPS) {
        for (int l = 1; l < 8; l++) sum += sums[l][threadIdx.x];
        dw[i] = convert<T>(sum);
    }
}
#endif
