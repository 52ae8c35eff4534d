// Sorting, and binary search.
//
// Elements are mapped to keys: unsigned integers in the order of the elements, NaN largest, both zeros equal. Equal
// keys are ordered by position, so the sort is stable. Runs of RUN elements are sorted in shared memory; then pairs of
// runs are merged: a binary search in the other run gives each element's place.

template <class X> __device__ inline u64 image(X x);
template <> __device__ inline u64 image(u8 x) { return x; }
template <> __device__ inline u64 image(bool8 x) { return x.bits != 0; }
template <> __device__ inline u64 image(i8 x) { return (u64)((i64)x + 128); }
template <> __device__ inline u64 image(i16 x) { return (u64)((i64)x + 32768); }
template <> __device__ inline u64 image(i32 x) { return (u64)((i64)x + 2147483648LL); }
template <> __device__ inline u64 image(i64 x) { return (u64)x ^ 0x8000000000000000ULL; }
template <> __device__ inline u64 image(float x) {
    u32 bits = __float_as_uint(x);
    if (x != x) return 0xffffffffu;
    if (x == 0) return 0x80000000u;
    return bits & 0x80000000u ? (u32)~bits : bits | 0x80000000u;
}
template <> __device__ inline u64 image(double x) {
    u64 bits = (u64)__double_as_longlong(x);
    if (x != x) return 0xffffffffffffffffULL;
    if (x == 0) return 0x8000000000000000ULL;
    return bits & 0x8000000000000000ULL ? ~bits : bits | 0x8000000000000000ULL;
}
template <> __device__ inline u64 image(f16 x) { return image(plain(x)); }
template <> __device__ inline u64 image(bf16 x) { return image(plain(x)); }

struct Item { u64 image; u64 position; };

__device__ inline bool before(Item a, Item b) { return a.image < b.image || (a.image == b.image && a.position < b.position); }

#ifdef SORT_RUNS
#define RUN 1024
// Sorts runs of each line into items [line][length]; descending order uses the keys' complement.
extern "C" __global__ void __launch_bounds__(512) sort_runs(Nest<1> lines, const T* x, u64 step, u64 length, u64 runs, u32 descending, Item* items) {
    __shared__ u64 memory[RUN * 2];
    Item* run = (Item*)memory;
    u64 line = blockIdx.x / runs, start = blockIdx.x % runs * RUN;
    idx at[1];
    lines.offsets((idx)line, at);
    for (u32 i = threadIdx.x; i < RUN; i += 512) {
        Item item;
        item.image = 0xffffffffffffffffULL;
        item.position = 0xffffffffffffffffULL;
        if (start + i < length) {
            u64 key = image(x[at[0] + (start + i) * step]);
            item.image = descending ? ~key : key;
            item.position = start + i;
        }
        run[i] = item;
    }
    for (u32 size = 2; size <= RUN; size *= 2) {
        for (u32 gap = size / 2; gap > 0; gap /= 2) {
            __syncthreads();
            u32 t = threadIdx.x, low = t / gap * gap * 2 + t % gap, high = low + gap;
            bool up = (low & size) == 0;
            Item a = run[low], b = run[high];
            if (before(b, a) == up) run[low] = b, run[high] = a;
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < RUN; i += 512)
        if (start + i < length) items[line * length + start + i] = run[i];
}
#endif

#ifdef SORT_MERGE
// Merges pairs of runs of `width`.
extern "C" __global__ void sort_merge(const Item* from, Item* to, u64 lines, u64 length, u64 width) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= lines * length) return;
    u64 line = i / length, place = i % length, pair = place / (2 * width) * 2 * width;
    const Item* base = from + line * length;
    u64 middle = pair + width < length ? pair + width : length, end = pair + 2 * width < length ? pair + 2 * width : length;
    bool left = place < middle;
    u64 low = left ? middle : pair, high = left ? end : middle, first = low;
    Item mine = base[place];
    while (low < high) {
        u64 half = (low + high) / 2;
        if (before(base[half], mine)) low = half + 1;
        else high = half;
    }
    u64 own = left ? place - pair : place - middle;
    to[line * length + pair + own + (low - first)] = mine;
}
#endif

#ifdef SORT_GATHER
// The first `kept` of each sorted line: values and positions.
extern "C" __global__ void sort_gather(Nest<3> lines, const Item* items, const T* x, T* values, i64* indices, u64 count, u64 length, u64 kept, u64 x_step, u64 value_step, u64 index_step) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count * kept) return;
    u64 line = i / kept, k = i % kept;
    idx at[3];
    lines.offsets((idx)line, at);
    u64 position = items[line * length + k].position;
    values[at[1] + k * value_step] = x[at[0] + position * x_step];
    indices[at[2] + k * index_step] = (i64)position;
}
#endif

#ifdef TOPK_SHORT
// The first `kept` of lines of at most SHORT elements in order, a line to a thread.
extern "C" __global__ void __launch_bounds__(128) topk_short(Nest<3> lines, const T* x, T* values, i64* indices, u64 count, u64 length, u64 kept, u64 x_step, u64 value_step, u64 index_step, u32 descending) {
    u64 line = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (line >= count) return;
    idx at[3];
    lines.offsets((idx)line, at);
    u64 keys[SHORT];
#pragma unroll
    for (u32 i = 0; i < SHORT; i++) {
        u64 key = 0;
        if (i < length) key = image(x[at[0] + i * x_step]);
        keys[i] = descending ? ~key : key;
    }
    u32 taken = 0;
    for (u64 k = 0; k < kept; k++) {
        u32 best = SHORT;
        u64 least = 0;
#pragma unroll
        for (u32 i = 0; i < SHORT; i++) {
            bool open = i < length && !(taken >> i & 1);
            if (open && (best == SHORT || keys[i] < least)) best = i, least = keys[i];
        }
        taken |= 1u << best;
        values[at[1] + k * value_step] = x[at[0] + best * x_step];
        indices[at[2] + k * index_step] = (i64)best;
    }
}
#endif

#ifdef TOPK_ROWS
// The first `kept` of lines of at most 256 * ITEMS elements in order, a line to a block. Each thread knows the first of
// its own elements; the block's first is the first of these.
extern "C" __global__ void __launch_bounds__(256) topk_rows(Nest<3> lines, const T* x, T* values, i64* indices, u64 length, u64 kept, u64 x_step, u64 value_step, u64 index_step, u32 descending) {
    __shared__ u64 shared[2][32];
    idx at[3];
    lines.offsets((idx)blockIdx.x, at);
    u64 keys[ITEMS];
    u32 open = 0;
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        u64 place = i * 256 + threadIdx.x;
        keys[i] = 0;
        if (place < length) {
            u64 key = image(x[at[0] + place * x_step]);
            keys[i] = descending ? ~key : key;
            open |= 1u << i;
        }
    }
    const u64 none = 0xffffffffffffffffULL;
    Item own;
    bool stale = true;
    for (u64 k = 0; k < kept; k++) {
        if (stale) {
            own.image = none;
            own.position = none;
#pragma unroll
            for (u32 i = 0; i < ITEMS; i++)
                if (open >> i & 1) {
                    Item item;
                    item.image = keys[i];
                    item.position = i * 256 + threadIdx.x;
                    if (before(item, own)) own = item;
                }
        }
        Item best = own;
        for (int mask = 16; mask > 0; mask /= 2) {
            Item other = shuffle_xor(best, mask);
            if (before(other, best)) best = other;
        }
        // Values of this round are not read any more when those of the next are written: a barrier is between them.
        __syncthreads();
        if (threadIdx.x % 32 == 0) shared[0][threadIdx.x / 32] = best.image, shared[1][threadIdx.x / 32] = best.position;
        __syncthreads();
        for (u32 w = 0; w < 8; w++) {
            Item other;
            other.image = shared[0][w];
            other.position = shared[1][w];
            if (w == 0 || before(other, best)) best = other;
        }
        stale = best.position % 256 == threadIdx.x;
        if (stale) {
            open &= ~(1u << (u32)(best.position / 256));
            values[at[1] + k * value_step] = x[at[0] + best.position * x_step];
            indices[at[2] + k * index_step] = (i64)best.position;
        }
    }
}
#endif

#ifdef SEARCH
// The insertion point of each value in its row of `sorted`: before equal elements, or after them (`right`).
extern "C" __global__ void searchsorted(Nest<3> rows, const T* sorted, const T* values, OUT* out, u64 count, u64 columns, u64 length, u64 sorted_step, u64 value_step, u64 out_step, u32 right) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    idx at[3];
    rows.offsets((idx)(i / columns), at);
    u64 column = i % columns;
    u64 key = image(values[at[1] + column * value_step]);
    u64 low = 0, high = length;
    while (low < high) {
        u64 half = (low + high) / 2, other = image(sorted[at[0] + half * sorted_step]);
        if (right ? other <= key : other < key) low = half + 1;
        else high = half;
    }
    out[at[2] + column * out_step] = convert<OUT>((i64)low);
}
#endif
