// Normalisation of the channels of [batch, channels, space].
//
// Sums over a channel are taken in pieces, gridDim.y of them, and joined in order. With few positions per image (ACROSS) neighbouring
// threads take neighbouring channels, else neighbouring elements of one channel.

__device__ inline float inverse_root(float x) { return 1 / sqrtf(x); }
__device__ inline double inverse_root(double x) { return 1 / sqrt(x); }

#if ACROSS
#define IN 8
#define CHANNELS_PER_BLOCK 32
#else
#define IN 256
#define CHANNELS_PER_BLOCK 1
#endif

struct Moments {
    W n, mean, m2;
    __device__ void merge(Moments b) {
        if (b.n == 0) return;
        W all = n + b.n, d = b.mean - mean;
        mean += d * (b.n / all);
        m2 += b.m2 + d * d * (n * (b.n / all));
        n = all;
    }
};

struct Pair {
    W plain, along;
    __device__ void merge(Pair b) { plain += b.plain, along += b.along; }
};

template <class A> __device__ inline void reduce_in(A& mine, u32 in, u32 o, A* shared) {
    shared[o * IN + in] = mine;
    for (u32 half = IN / 2; half > 0; half /= 2) {
        __syncthreads();
        if (in < half) {
            mine.merge(shared[o * IN + in + half]);
            shared[o * IN + in] = mine;
        }
    }
}

#define COORDINATES                                                                         \
    u32 o = threadIdx.x % CHANNELS_PER_BLOCK, in = threadIdx.x / CHANNELS_PER_BLOCK;        \
    u64 channel = blockIdx.x * (u64)CHANNELS_PER_BLOCK + o;                                 \
    u64 first = blockIdx.y * piece, last = first + piece < count ? first + piece : count;

#ifdef STATISTICS
extern "C" __global__ void __launch_bounds__(256) batch_norm_statistics(const T* x, Moments* partial, u64 channels, u64 space, u64 count, u64 piece) {
    __shared__ u64 memory[256 * sizeof(Moments) / 8];
    COORDINATES
    Moments mine;
    mine.n = 0, mine.mean = 0, mine.m2 = 0;
    if (channel < channels) {
        for (u64 e = first + in; e < last; e += IN) {
            W v = convert<W>(x[(e / space * channels + channel) * space + e % space]);
            mine.n += 1;
            W d = v - mine.mean;
            mine.mean += d / mine.n;
            mine.m2 += d * (v - mine.mean);
        }
    }
    reduce_in(mine, in, o, (Moments*)memory);
    if (in == 0 && channel < channels) partial[blockIdx.y * channels + channel] = mine;
}

extern "C" __global__ void batch_norm_finish(const Moments* partial, W* mean, W* rstd, u64 channels, u64 pieces, double eps) {
    u64 channel = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    Moments all;
    all.n = 0, all.mean = 0, all.m2 = 0;
    for (u64 i = 0; i < pieces; i++) all.merge(partial[i * channels + channel]);
    mean[channel] = all.mean;
    rstd[channel] = inverse_root(all.m2 / all.n + (W)eps);
}
#endif

#ifdef APPLY
extern "C" __global__ void batch_norm(const T* x, const P* weight, const P* bias, T* y, const W* mean, const W* rstd, u64 channels, u64 space, u64 count) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    u64 c = i / space % channels;
    W h = (convert<W>(x[i]) - mean[c]) * rstd[c];
    if (weight) h *= convert<W>(weight[c]);
    if (bias) h += convert<W>(bias[c]);
    y[i] = convert<T>(h);
}
#endif

#ifdef BACKWARD
extern "C" __global__ void __launch_bounds__(256) batch_norm_sums(const T* dy, const T* x, const W* mean, const W* rstd, Pair* partial, u64 channels, u64 space, u64 count, u64 piece) {
    __shared__ u64 memory[256 * sizeof(Pair) / 8];
    COORDINATES
    Pair mine;
    mine.plain = 0, mine.along = 0;
    if (channel < channels) {
        W middle = mean[channel], scale = rstd[channel];
        for (u64 e = first + in; e < last; e += IN) {
            u64 at = (e / space * channels + channel) * space + e % space;
            W g = convert<W>(dy[at]);
            mine.plain += g;
            mine.along += g * ((convert<W>(x[at]) - middle) * scale);
        }
    }
    reduce_in(mine, in, o, (Pair*)memory);
    if (in == 0 && channel < channels) partial[blockIdx.y * channels + channel] = mine;
}

extern "C" __global__ void batch_norm_join(const Pair* partial, Pair* sums, P* dweight, P* dbias, u64 channels, u64 pieces) {
    u64 channel = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    Pair all;
    all.plain = 0, all.along = 0;
    for (u64 i = 0; i < pieces; i++) all.merge(partial[i * channels + channel]);
    sums[channel] = all;
    if (dweight) dweight[channel] = convert<P>(all.along);
    if (dbias) dbias[channel] = convert<P>(all.plain);
}

// `over`: how many elements the statistics were taken of; 0 if they were given.
extern "C" __global__ void batch_norm_backward(const T* dy, const T* x, const P* weight, const W* mean, const W* rstd, const Pair* sums, T* dx, u64 channels, u64 space, u64 count, u64 over) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    u64 c = i / space % channels;
    W g = convert<W>(dy[i]);
    if (over) g -= (sums[c].plain + (convert<W>(x[i]) - mean[c]) * rstd[c] * sums[c].along) / (W)over;
    g *= rstd[c];
    if (weight) g *= convert<W>(weight[c]);
    dx[i] = convert<T>(g);
}
#endif
