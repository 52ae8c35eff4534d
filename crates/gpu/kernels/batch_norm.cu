// Normalisation of the channels of [batch, channels, space].
//
// The tensor is read as [batch, channels, space] of vectors of LANES elements. Vectors run along the space or, if an
// image has one position (ACROSS), along the channels. A block has CHANNELS vectors side by side and IN threads for
// each. A channel's vectors are split into gridDim.y pieces, whose sums are joined in order.

__device__ inline float inverse_root(float x) { return 1 / sqrtf(x); }
__device__ inline double inverse_root(double x) { return 1 / sqrt(x); }

typedef Vec<T, LANES> V;
#define IN (256 / CHANNELS)
#if ACROSS
#define OWN LANES  // channels of a thread
#else
#define OWN 1
#endif
#define EACH_LANE _Pragma("unroll") for (int l = 0; l < LANES; l++)
#define EACH_OWN _Pragma("unroll") for (int o = 0; o < OWN; o++)
#define OF(l) (ACROSS ? (l) : 0)  // which of the thread's channels a lane belongs to

struct Moments {
    W n, mean, m2;
    __device__ void merge(Moments b) {
        if (b.n == 0) return;
        W all = n + b.n, d = b.mean - mean;
        mean += d * (b.n / all);
        m2 += b.m2 + d * d * (n * (b.n / all));
        n = all;
    }
    // Joined with the lane whose number differs by m: both lanes get the same result.
    __device__ void merge_lanes(int m) {
        Moments other = shuffle_xor(*this, m);
        if (threadIdx.x & m) { Moments mine = *this; *this = other, other = mine; }
        merge(other);
    }
};

struct Pair {
    W plain, along;
    __device__ void merge(Pair b) { plain += b.plain, along += b.along; }
    __device__ void merge_lanes(int m) { merge(shuffle_xor(*this, m)); }
};

// Sizes in vectors: of the tensor and of a piece.
struct Cut { u64 channels, space, count, piece; };

// A thread's iteration over its piece of a channel.
struct Walk {
    idx column, e, last, image, position, images, positions;
    Cut cut;

    __device__ Walk(const Cut& c) : cut(c) {
        u32 in = threadIdx.x / CHANNELS;
        column = (idx)blockIdx.x * CHANNELS + threadIdx.x % CHANNELS;
        e = (idx)blockIdx.y * (idx)c.piece + in;
        last = (idx)(blockIdx.y * c.piece + c.piece < c.count ? blockIdx.y * c.piece + c.piece : c.count);
        if (column >= c.channels) last = 0;
        image = e / (idx)c.space, position = e % (idx)c.space;
        images = IN / (idx)c.space, positions = IN % (idx)c.space;
    }
    __device__ bool more() const { return e < last; }
    __device__ idx at() const { return (image * (idx)cut.channels + column) * (idx)cut.space + position; }
    __device__ void next() {
        e += IN;
        image += images;
        position += positions;
        if (position >= (idx)cut.space) position -= (idx)cut.space, image += 1;
    }
    __device__ u64 channel(int o) const { return (u64)column * OWN + o; }
    __device__ bool there() const { return column < cut.channels; }
};

// Keeps several loads in flight: `load` reads a position, `use` consumes it.
#define AT_ONCE 4
#define WALK(load, use)                                                   \
    while (walk.more()) {                                                 \
        idx at[AT_ONCE];                                                  \
        bool there[AT_ONCE];                                              \
        _Pragma("unroll") for (int u = 0; u < AT_ONCE; u++) {             \
            there[u] = walk.more();                                       \
            at[u] = there[u] ? walk.at() : at[0];                         \
            walk.next();                                                  \
            load                                                          \
        }                                                                 \
        _Pragma("unroll") for (int u = 0; u < AT_ONCE; u++) if (there[u]) { use } \
    }

// Writes the sums over a block's threads to `to`, one per channel.
template <class A> __device__ inline void reduce_block(A (&mine)[OWN], const Walk& walk, A* to) {
    __shared__ A shared[8][CHANNELS][OWN];
    EACH_OWN {
#pragma unroll
        for (int m = 16; m >= CHANNELS; m /= 2) mine[o].merge_lanes(m);
        if (threadIdx.x % 32 < CHANNELS) shared[threadIdx.x / 32][threadIdx.x % 32][o] = mine[o];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < CHANNELS * OWN; i += 256) {
        u32 column = i / OWN, o = i % OWN;
        A all = shared[0][column][o];
#pragma unroll
        for (int w = 1; w < 8; w++) all.merge(shared[w][column][o]);
        u64 place = blockIdx.x * (u64)CHANNELS + column;
        if (place < walk.cut.channels) to[blockIdx.y * walk.cut.channels * OWN + place * OWN + o] = all;
    }
}

// Adds up the values of 32 rows of threads for 32 channels each.
template <class A> __device__ inline A add_rows(A mine, A (&shared)[32][33]) {
    __syncthreads();
    shared[threadIdx.y][threadIdx.x] = mine;
    __syncthreads();
    return group_reduce<Sum, 32>(shared[threadIdx.x][threadIdx.y], (A*)0);
}

#ifdef STATISTICS
extern "C" __global__ void __launch_bounds__(256) batch_norm_statistics(const V* x, Moments* partial, Cut cut) {
    Walk walk(cut);
    // Sums differences from the thread's first element: squares of small differences are exact.
    W middle[OWN], sum[OWN], squares[OWN];
    EACH_OWN middle[o] = 0, sum[o] = 0, squares[o] = 0;
    W n = 0;
    if (walk.more()) {
        V one = x[walk.at()];
        EACH_OWN middle[o] = convert<W>(one.v[o]);
    }
    V one[AT_ONCE];
    WALK(one[u] = x[at[u]];, {
        n += ACROSS ? 1 : LANES;
        EACH_LANE {
            W d = convert<W>(one[u].v[l]) - middle[OF(l)];
            sum[OF(l)] += d;
            squares[OF(l)] += d * d;
        }
    })
    Moments mine[OWN];
    EACH_OWN {
        W above = n > 0 ? sum[o] / n : (W)0, spread = squares[o] - above * sum[o];
        mine[o].n = n, mine[o].mean = middle[o] + above, mine[o].m2 = spread < 0 ? (W)0 : spread;
    }
    reduce_block(mine, walk, partial);
}

// 32 channels by 32 rows of threads.
extern "C" __global__ void __launch_bounds__(1024) batch_norm_finish(const Moments* partial, W* mean, W* rstd, u64 channels, u64 pieces, double eps) {
    __shared__ W shared[32][33];
    __shared__ W means[32];
    u64 channel = blockIdx.x * 32 + threadIdx.x;
    W n = 0, sum = 0, m2 = 0;
    if (channel < channels) {
#pragma unroll 4
        for (u64 i = threadIdx.y; i < pieces; i += 32) {
            Moments part = partial[i * channels + channel];
            n += part.n, sum += part.n * part.mean;
        }
    }
    // From here on a row of threads holds one channel's sums.
    W all = add_rows(n, shared), middle = add_rows(sum, shared) / all;
    if (threadIdx.x == 0) means[threadIdx.y] = middle;
    __syncthreads();
    if (channel < channels) {
        W own = means[threadIdx.x];
#pragma unroll 4
        for (u64 i = threadIdx.y; i < pieces; i += 32) {
            Moments part = partial[i * channels + channel];
            m2 += part.m2 + part.n * (part.mean - own) * (part.mean - own);
        }
    }
    m2 = add_rows(m2, shared);
    channel = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x || channel >= channels) return;
    mean[channel] = middle;
    rstd[channel] = inverse_root(m2 / all + (W)eps);
}
#endif

// A normalised element. The formula is explicit because gradients that recompute it must get the same bits.
__device__ inline float normal(float x, float middle, float scale, float shift) { return fmaf(x - middle, scale, shift); }
__device__ inline double normal(double x, double middle, double scale, double shift) { return fma(x - middle, scale, shift); }

#ifdef APPLY
// After the normalisation: ADD adds another tensor, then RELU. KEEP and KEEP_SUM select the intermediate results to
// write. Each step rounds as if its result had been stored.
extern "C" __global__ void __launch_bounds__(256) batch_norm(const V* x, const P* weight, const P* bias, V* y, const W* mean, const W* rstd, const V* other, V* sum, V* positive, Cut cut) {
    Walk walk(cut);
    if (!walk.there()) return;
    W middle[OWN], scale[OWN], shift[OWN];
    EACH_OWN {
        u64 c = walk.channel(o);
        middle[o] = mean[c];
        scale[o] = rstd[c] * (weight ? convert<W>(weight[c]) : (W)1);
        shift[o] = bias ? convert<W>(bias[c]) : (W)0;
    }
    V one[AT_ONCE], more[AT_ONCE];
    WALK(one[u] = x[at[u]]; if (ADD) more[u] = other[at[u]];, {
        EACH_LANE one[u].v[l] = convert<T>(normal(convert<W>(one[u].v[l]), middle[OF(l)], scale[OF(l)], shift[OF(l)]));
        if (KEEP) y[at[u]] = one[u];
        if (ADD) {
            EACH_LANE one[u].v[l] = convert<T>(convert<W>(one[u].v[l]) + convert<W>(more[u].v[l]));
            if (KEEP_SUM) sum[at[u]] = one[u];
        }
        if (RELU) {
            EACH_LANE {
                W v = convert<W>(one[u].v[l]);
                one[u].v[l] = v > 0 || v != v ? one[u].v[l] : convert<T>((W)0);
            }
            positive[at[u]] = one[u];
        }
    })
}
#endif

#ifdef RUNNING
// `scale` is n / (n - 1) for the n values of the variance.
extern "C" __global__ void batch_norm_running(const W* mean, const W* rstd, W* running_mean, W* running_var, u64 channels, double eps, double scale, double momentum) {
    u64 c = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (c >= channels) return;
    W var = 1 / (rstd[c] * rstd[c]) - (W)eps, w = (W)momentum;
    var = (var < 0 ? (W)0 : var) * (W)scale;
    W a = running_mean[c], b = mean[c];
    bool small = w < (W)0.5 && w > (W)-0.5;
    running_mean[c] = small ? a + w * (b - a) : b - (b - a) * (1 - w);
    a = running_var[c], b = var;
    running_var[c] = small ? a + w * (b - a) : b - (b - a) * (1 - w);
}
#endif

#ifdef BACKWARD
// Whether the ReLU after the normalisation, if there is one, passes an element's gradient.
__device__ inline bool passes(W x, W middle, W scale, W shift) {
    return !RELU || convert<W>(convert<T>(normal(x, middle, scale, shift))) > 0;
}

extern "C" __global__ void __launch_bounds__(256) batch_norm_sums(const V* dy, const V* x, const P* weight, const P* bias, const W* mean, const W* rstd, const V* positive, V* masked, Pair* partial, Cut cut) {
    Walk walk(cut);
    W middle[OWN], scale[OWN], shift[OWN];
    Pair mine[OWN];
    EACH_OWN {
        u64 c = walk.channel(o);
        middle[o] = walk.there() ? mean[c] : (W)0, mine[o].plain = 0, mine[o].along = 0;
        scale[o] = RELU && walk.there() ? rstd[c] * (weight ? convert<W>(weight[c]) : (W)1) : (W)0;
        shift[o] = RELU && walk.there() && bias ? convert<W>(bias[c]) : (W)0;
    }
    V g[AT_ONCE], h[AT_ONCE], p[AT_ONCE];
    WALK(g[u] = dy[at[u]]; h[u] = x[at[u]]; if (MASKED) p[u] = positive[at[u]];, {
        if (MASKED) {
            EACH_LANE if (!(convert<W>(p[u].v[l]) > 0)) g[u].v[l] = convert<T>((W)0);
            masked[at[u]] = g[u];
        }
        EACH_LANE {
            W d = convert<W>(g[u].v[l]);
            if (!passes(convert<W>(h[u].v[l]), middle[OF(l)], scale[OF(l)], shift[OF(l)])) d = 0;
            mine[OF(l)].plain += d;
            mine[OF(l)].along += d * (convert<W>(h[u].v[l]) - middle[OF(l)]);
        }
    })
    EACH_OWN if (walk.there()) mine[o].along *= rstd[walk.channel(o)];
    reduce_block(mine, walk, partial);
}

// 32 channels by 32 rows of threads.
extern "C" __global__ void __launch_bounds__(1024) batch_norm_join(const Pair* partial, Pair* sums, P* dweight, P* dbias, u64 channels, u64 pieces) {
    __shared__ W shared[32][33];
    u64 channel = blockIdx.x * 32 + threadIdx.x;
    Pair all;
    all.plain = 0, all.along = 0;
    if (channel < channels) {
#pragma unroll 4
        for (u64 i = threadIdx.y; i < pieces; i += 32) all.merge(partial[i * channels + channel]);
    }
    all.plain = add_rows(all.plain, shared);
    all.along = add_rows(all.along, shared);
    channel = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x || channel >= channels) return;
    sums[channel] = all;
    if (dweight) dweight[channel] = convert<P>(all.along);
    if (dbias) dbias[channel] = convert<P>(all.plain);
}

// `over`: number of elements of the statistics; 0 if the caller gave the statistics.
extern "C" __global__ void __launch_bounds__(256) batch_norm_backward(const V* dy, const V* x, const P* weight, const P* bias, const W* mean, const W* rstd, const Pair* sums, V* dx, Cut cut, u64 over) {
    Walk walk(cut);
    if (!walk.there()) return;
    W middle[OWN], scale[OWN], shift[OWN], off[OWN], slope[OWN];
    EACH_OWN {
        u64 c = walk.channel(o);
        middle[o] = mean[c];
        scale[o] = rstd[c] * (weight ? convert<W>(weight[c]) : (W)1);
        shift[o] = RELU && bias ? convert<W>(bias[c]) : (W)0;
        off[o] = over ? sums[c].plain / (W)over : (W)0;
        slope[o] = over ? sums[c].along / (W)over * rstd[c] : (W)0;
    }
    V g[AT_ONCE], h[AT_ONCE];
    WALK(g[u] = dy[at[u]]; h[u] = x[at[u]];, {
        EACH_LANE {
            W d = convert<W>(g[u].v[l]);
            W v = convert<W>(h[u].v[l]);
            if (!passes(v, middle[OF(l)], scale[OF(l)], shift[OF(l)])) d = 0;
            g[u].v[l] = convert<T>((d - off[OF(l)] - (v - middle[OF(l)]) * slope[OF(l)]) * scale[OF(l)]);
        }
        dx[at[u]] = g[u];
    })
}
#endif
