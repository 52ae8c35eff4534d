// Products that the vendor's library does not support: integers, empty sums, strides in both dimensions, other
// epilogues.

enum { NONE, RELU, GELU, GELU_TANH };

__device__ inline float activated(float x) {
    if (ACTIVATION == RELU) return x > 0 || x != x ? x : 0;
    if (ACTIVATION == GELU) return x * normcdff(x);
    if (ACTIVATION == GELU_TANH) return 0.5f * x * (1 + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    return x;
}
__device__ inline double activated(double x) {
    if (ACTIVATION == RELU) return x > 0 || x != x ? x : 0;
    if (ACTIVATION == GELU) return x * normcdf(x);
    if (ACTIVATION == GELU_TANH) return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return x;
}
__device__ inline i64 activated(i64 x) { return ACTIVATION == RELU && x < 0 ? 0 : x; }

#ifdef EPILOGUE
extern "C" __global__ void epilogue(Nest<2> nest, T* out, const T* bias, u64 count) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    idx at[2];
    nest.offsets((idx)i, at);
    W x = convert<W>(out[at[0]]);
#if BIAS
    x += convert<W>(bias[at[1]]);
#endif
    out[at[0]] = convert<T>(activated(x));
}
#endif

#ifdef PRODUCT
struct Strides { u64 a[3], b[3], out[3]; };
struct Sizes { u64 m, n, k; };

// One thread per element of a 16 by 16 tile; operands are staged in shared memory.
extern "C" __global__ void __launch_bounds__(256) product(const T* a, const T* b, OUT* out, const T* bias, Strides s, Sizes z, u64 bias_step, double alpha, double beta) {
    __shared__ W tile_a[16][17], tile_b[16][17];
    u64 tiles = (z.n + 15) / 16;
    u64 row = blockIdx.x / tiles * 16 + threadIdx.y, column = blockIdx.x % tiles * 16 + threadIdx.x;
    a += blockIdx.y * s.a[0];
    b += blockIdx.y * s.b[0];
    out += blockIdx.y * s.out[0];
    W sum = 0;
    for (u64 k = 0; k < z.k; k += 16) {
        u64 ka = k + threadIdx.x, kb = k + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < z.m && ka < z.k ? convert<W>(a[row * s.a[1] + ka * s.a[2]]) : (W)0;
        tile_b[threadIdx.y][threadIdx.x] = column < z.n && kb < z.k ? convert<W>(b[kb * s.b[1] + column * s.b[2]]) : (W)0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; i++) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        __syncthreads();
    }
    if (row >= z.m || column >= z.n) return;
    OUT* place = out + row * s.out[1] + column * s.out[2];
    W y = (W)alpha * sum;
    if (beta != 0) y += (W)beta * convert<W>(*place);
#if BIAS
    y += convert<W>(bias[column * bias_step]);
#endif
    *place = convert<OUT>(activated(y));
}
#endif

#ifdef MOVE
struct MoveSizes { u64 rows, columns, vectors; };

// Copies rows of `columns` elements to rows of `vectors` vectors: the rest of a row, and further rows, become zero.
extern "C" __global__ void __launch_bounds__(256) move_rows(const T* from, T* to, u64 from_stride, u64 to_stride, MoveSizes sizes, u64 count) {
    typedef Vec<T, LANES> V;
#pragma unroll
    for (u32 n = 0; n < 4; n++) {
        u64 i = (blockIdx.x * 4ull + n) * 256 + threadIdx.x;
        if (i >= count) return;
        u64 row = i <= 0xffffffffu ? (u32)i / (u32)sizes.vectors : i / sizes.vectors, column = (i - row * sizes.vectors) * LANES;
        V x = {};
        if (row < sizes.rows && column < sizes.columns) x = *(const V*)(from + row * from_stride + column);
        *(V*)(to + row * to_stride + column) = x;
    }
}
#endif
