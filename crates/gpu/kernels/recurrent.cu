// One LSTM step and its gradient: one thread per element of the state.
//
// T is the dtype, W its compute type. Rows of gates are input, forget, new and output, `hidden` elements each.

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float hyperbolic(float x) { return tanhf(x); }
__device__ inline double hyperbolic(double x) { return tanh(x); }
__device__ inline W logistic(W x) { return (W)1 / ((W)1 + exponential(-x)); }

extern "C" __global__ void lstm_cell(T* gates, const T* before, T* c, T* h, u64 count, u64 hidden) {
    u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (at >= count) return;
    T* gate = gates + at / hidden * 4 * hidden + at % hidden;
    W input = logistic(convert<W>(gate[0]));
    W forget = logistic(convert<W>(gate[hidden]));
    W fresh = hyperbolic(convert<W>(gate[2 * hidden]));
    W output = logistic(convert<W>(gate[3 * hidden]));
    W state = forget * convert<W>(before[at]) + input * fresh;
    gate[0] = convert<T>(input);
    gate[hidden] = convert<T>(forget);
    gate[2 * hidden] = convert<T>(fresh);
    gate[3 * hidden] = convert<T>(output);
    c[at] = convert<T>(state);
    h[at] = convert<T>(output * hyperbolic(state));
}

// `outer` may be null.
extern "C" __global__ void lstm_cell_backward(const T* gates, const T* before, const T* c, const T* dh, const T* outer, T* dc, T* dgates, u64 count, u64 hidden) {
    u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (at >= count) return;
    u64 first = at / hidden * 4 * hidden + at % hidden;
    const T* gate = gates + first;
    T* to = dgates + first;
    W input = convert<W>(gate[0]), forget = convert<W>(gate[hidden]), fresh = convert<W>(gate[2 * hidden]), output = convert<W>(gate[3 * hidden]);
    W seen = hyperbolic(convert<W>(c[at]));
    W above = convert<W>(dh[at]);
    if (outer) above += convert<W>(outer[at]);
    W cell = convert<W>(dc[at]) + above * output * ((W)1 - seen * seen);
    to[0] = convert<T>(cell * input * ((W)1 - input) * fresh);
    to[hidden] = convert<T>(cell * forget * ((W)1 - forget) * convert<W>(before[at]));
    to[2 * hidden] = convert<T>(cell * ((W)1 - fresh * fresh) * input);
    to[3 * hidden] = convert<T>(above * output * ((W)1 - output) * seen);
    dc[at] = convert<T>(cell * forget);
}
