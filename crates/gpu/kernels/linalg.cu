// Passes before and after the solver's routines. Matrices are contiguous and row-major.

#define AT (blockIdx.x * (u64)blockDim.x + threadIdx.x)

// Zeroes the triangle below the diagonals (UPPER) or above.
extern "C" __global__ void triangle(T* a, u64 rows, u64 columns, u64 count, u32 upper) {
    if (AT >= count) return;
    u64 column = AT % columns, row = AT / columns % rows;
    if (upper ? row > column : row < column) a[AT] = 0;
}

// Writes identity matrices.
extern "C" __global__ void identity(T* a, u64 n, u64 count) {
    if (AT < count) a[AT] = AT % n == AT / n % n ? 1 : 0;
}

// Start addresses of the matrices.
extern "C" __global__ void addresses(u64* list, u64 start, u64 step, u64 count) {
    if (AT < count) list[AT] = start + AT * step;
}

// Whether a matrix, or its lower triangle, has a number that is not finite. One block per matrix.
extern "C" __global__ void not_finite(const T* a, u64 rows, u64 columns, u32 lower, int* found) {
    u64 size = rows * columns;
    int any = 0;
    for (u64 i = threadIdx.x; i < size; i += blockDim.x) {
        T x = a[blockIdx.x * size + i];
        any |= !(lower && i % columns > i / columns) && x - x != 0;
    }
    any = __syncthreads_or(any);
    if (threadIdx.x == 0) found[blockIdx.x] = any != 0;
}

// Determinants from LU factors and pivots (row numbers from one on): the product, or its sign and the logarithm of its
// magnitude. One warp per matrix.
extern "C" __global__ void determinant(const T* factors, const i64* rows, u64 n, T* product, T* log_size) {
    const T* matrix = factors + blockIdx.x * n * n;
    rows += blockIdx.x * n;
    T whole = 1, size = 0;
    for (u64 i = threadIdx.x; i < n; i += 32) {
        T x = matrix[i * n + i];
        if (log_size) {
            size += log(x < 0 ? -x : x);
            x = x > 0 ? (T)1 : x < 0 ? (T)-1 : x;
        }
        whole *= rows[i] == (i64)i + 1 ? x : -x;
    }
    for (int step = 16; step > 0; step /= 2) {
        whole *= __shfl_down_sync(~0u, whole, step);
        size += __shfl_down_sync(~0u, size, step);
    }
    if (threadIdx.x != 0) return;
    product[blockIdx.x] = whole;
    if (log_size) log_size[blockIdx.x] = size;
}
