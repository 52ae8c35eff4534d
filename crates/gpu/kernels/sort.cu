// Sorting, top-k, and binary search.
//
// Elements are mapped to keys: unsigned integers in the order of the elements, NaN largest, both zeros equal. A sort
// orders items, a key and a position each, by one digit of eight bits after the other, the lowest first. Every pass is
// stable, so equal elements keep their order. Lines that fit into a block's shared memory are sorted there; longer
// ones pass through global memory in tiles: a tile counts its digits, the counts of all tiles are summed, and a tile
// then knows where its items go.

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
// Half types have keys of 16 bits.
__device__ inline u64 image_half(u16 bits, bool nan) {
    if (nan) return 0xffffu;
    if ((bits & 0x7fff) == 0) return 0x8000u;
    return bits & 0x8000 ? (u16)~bits : (u16)(bits | 0x8000);
}
template <> __device__ inline u64 image(f16 x) { return image_half(x.bits, (x.bits & 0x7fff) > 0x7c00); }
template <> __device__ inline u64 image(bf16 x) { return image_half(x.bits, (x.bits & 0x7fff) > 0x7f80); }

#if PACKED
// A key of at most 32 bits above a position of 32 bits.
typedef u64 Item;
__device__ inline Item item_of(u64 key, u64 position) { return key << 32 | (u32)position; }
__device__ inline u64 key_of(Item item) { return item >> 32; }
__device__ inline u64 position_of(Item item) { return (u32)item; }
#else
struct Item { u64 key; u64 position; };
__device__ inline Item item_of(u64 key, u64 position) {
    Item item;
    item.key = key;
    item.position = position;
    return item;
}
__device__ inline u64 key_of(Item item) { return item.key; }
__device__ inline u64 position_of(Item item) { return item.position; }
#endif

// The key of an element; offsets are their own keys, and -1 is the largest of them.
__device__ inline u64 key_of_element(T x) {
#if OFFSETS
    return PACKED ? (u64)(u32)x : (u64)x;
#else
    return image(x);
#endif
}

#if defined(SORT_BLOCK) || defined(UNIQUE_BLOCK) || defined(RADIX_SCATTER)
#define WARPS 8
struct Ranks { u32 counts[WARPS][256]; u32 starts[256]; u32 totals[WARPS]; };

// The places that a tile's items have after a stable sort by one digit. Items are numbered by warp, then by i, then by
// lane. starts[d] is the first place of digit d.
__device__ inline void rank_digits(const u32 (&digits)[ITEMS], u32 (&places)[ITEMS], Ranks& shared) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32* counts = shared.counts[warp];
    __syncthreads();
    for (u32 d = lane; d < 256; d += 32) counts[d] = 0;
    __syncwarp();
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        u32 digit = digits[i], peers = FULL_WARP;
#pragma unroll
        for (u32 b = 0; b < 8; b++) {
            u32 set = ballot(digit >> b & 1);
            peers &= digit >> b & 1 ? set : ~set;
        }
        u32 earlier = __popc(peers & ((1u << lane) - 1)), before = counts[digit];
        __syncwarp();
        if (earlier == 0) counts[digit] = before + __popc(peers);
        __syncwarp();
        places[i] = before + earlier;
    }
    __syncthreads();
    // A thread sums up one digit over the warps; `from` becomes the number of this digit and of larger ones.
    u32 from = 0;
#pragma unroll
    for (u32 w = 0; w < WARPS; w++) {
        u32 count = shared.counts[w][threadIdx.x];
        shared.counts[w][threadIdx.x] = from;
        from += count;
    }
#pragma unroll
    for (u32 reach = 1; reach < 32; reach *= 2) {
        u32 next = __shfl_down_sync(FULL_WARP, from, reach);
        if (lane + reach < 32) from += next;
    }
    if (lane == 0) shared.totals[warp] = from;
    __syncthreads();
    for (u32 w = warp + 1; w < WARPS; w++) from += shared.totals[w];
    shared.starts[threadIdx.x] = 256 * ITEMS - from;
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) places[i] += shared.starts[digits[i]] + shared.counts[warp][digits[i]];
}
#endif

#if defined(SORT_BLOCK) || defined(UNIQUE_BLOCK)
struct Either { static __device__ u64 merge(u64 a, u64 b) { return a | b; } };

// A thread's items of a line of `length`, from place `first` on, 32 places apart. Places past the end get the largest
// key. Keys are compared after `flip` inverts them for descending order. Returns the bits that differ between keys.
__device__ inline u64 load_items(Item (&own)[ITEMS], const T* line, u64 step, u64 length, u64 flip, u32 first, u64* shared) {
    u64 some = key_of_element(line[0]) ^ flip, differ = 0;
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        u64 place = first + i * 32;
        own[i] = item_of(0xffffffffffffffffULL, place);
        if (place < length) {
            u64 key = key_of_element(line[place * step]) ^ flip;
            own[i] = item_of(key, place);
            differ |= key ^ some;
        }
    }
    return group_reduce<Either, 256>(differ, shared);
}

// Sorts a block's items by the digits that differ.
__device__ inline void sort_items(Item (&own)[ITEMS], Item* sorted, Ranks& ranks, u64 differ, u32 passes, u32 first) {
    for (u32 pass = 0; pass < passes; pass++) {
        if ((differ >> (8 * pass) & 255) == 0) continue;
        u32 digits[ITEMS], places[ITEMS];
#pragma unroll
        for (u32 i = 0; i < ITEMS; i++) digits[i] = (u32)(key_of(own[i]) >> (8 * pass)) & 255;
        rank_digits(digits, places, ranks);
#pragma unroll
        for (u32 i = 0; i < ITEMS; i++) sorted[places[i]] = own[i];
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < ITEMS; i++) own[i] = sorted[first + i * 32];
    }
}
#endif

#ifdef SORT_BLOCK
// Sorts lines of at most 256 * ITEMS elements, a line to a block, and writes the first `kept` values and positions, or
// the items themselves.
extern "C" __global__ void __launch_bounds__(256) sort_block(Nest<3> lines, const T* x, T* values, i64* indices, Item* items, u64 length, u64 kept, u64 x_step, u64 value_step, u64 index_step, u64 flip, u32 passes) {
    __shared__ Item sorted[256 * ITEMS];
    __shared__ Ranks ranks;
    __shared__ u64 bits[WARPS];
    idx at[3];
    lines.offsets((idx)blockIdx.x, at);
    u32 first = threadIdx.x / 32 * 32 * ITEMS + threadIdx.x % 32;
    Item own[ITEMS];
    u64 differ = load_items(own, x + at[0], x_step, length, flip, first, bits);
    sort_items(own, sorted, ranks, differ, passes, first);
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        u64 place = first + i * 32, position = position_of(own[i]);
        if (place >= kept) continue;
        if (items) {
            items[blockIdx.x * length + place] = own[i];
        } else {
            values[at[1] + place * value_step] = x[at[0] + position * x_step];
            indices[at[2] + place * index_step] = (i64)position;
        }
    }
}
#endif

#ifdef UNIQUE_BLOCK
// The distinct elements of one line of at most 256 * ITEMS, their counts, the number of each element's, and how many
// there are. NaN has the largest key of its dtype, and differs from every other.
extern "C" __global__ void __launch_bounds__(256) unique_block(const T* x, T* values, i64* inverse, i64* counts, i64* count, u64 length, u32 passes) {
    __shared__ Item sorted[256 * ITEMS];
    __shared__ Ranks ranks;
    __shared__ u64 bits[WARPS];
    __shared__ u32 distinct[WARPS];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp * 32 * ITEMS + lane;
    Item own[ITEMS];
    u64 differ = load_items(own, x, 1, length, 0, first, bits);
    sort_items(own, sorted, ranks, differ, passes, first);
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) sorted[first + i * 32] = own[i];
    __syncthreads();
    // Which items begin a run, by groups of 32 neighbours, and the number of runs that begin before a group.
    u32 begins[ITEMS], before[ITEMS], mine = 0;
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        u32 place = first + i * 32;
        u64 key = key_of(own[i]);
        bool is_nan = IS_FLOAT && key == 0xffffffffffffffffULL >> (64 - 8 * sizeof(T));
        bool begin = place < length && (place == 0 || is_nan || key_of(sorted[place > 0 ? place - 1 : 0]) != key);
        begins[i] = ballot((u32)begin);
        before[i] = mine;
        mine += __popc(begins[i]);
    }
    if (lane == 0) distinct[warp] = mine;
    __syncthreads();
    u32 earlier = 0, all = 0;
    for (u32 w = 0; w < WARPS; w++) {
        if (w == warp) earlier = all;
        all += distinct[w];
    }
    // The items are not read any more: their memory is the places where runs begin.
    u32* starts = (u32*)sorted;
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        u32 place = first + i * 32;
        if (place >= length) continue;
        u64 position = position_of(own[i]);
        u32 number = earlier + before[i] + __popc(begins[i] << (31 - lane)) - 1;
        inverse[position] = (i64)number;
        if (begins[i] >> lane & 1) {
            values[number] = x[position];
            starts[number] = place;
        }
    }
    __syncthreads();
    for (u32 n = threadIdx.x; n < all; n += 256) counts[n] = (i64)((n + 1 < all ? starts[n + 1] : (u32)length) - starts[n]);
    if (threadIdx.x == 0) *count = (i64)all;
}
#endif

#if defined(RADIX_COUNT) || defined(RADIX_SCATTER)
#define TILE (256 * ITEMS)

// An item of a line in the order of the pass before; in the first pass, of its elements.
__device__ inline Item item_at(const Item* items, const T* x, u64 step, u64 place, u64 flip) {
    return items ? items[place] : item_of(key_of_element(x[place * step]) ^ flip, place);
}
#endif

#ifdef RADIX_COUNT
// counts[line][digit][tile]: how many items of a tile have a digit.
extern "C" __global__ void __launch_bounds__(256) radix_count(Nest<1> lines, const T* x, u64 step, const Item* items, u64 length, u64 tiles, u64 flip, u32 shift, i64* counts) {
    __shared__ u32 seen[256];
    u64 line = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    idx at[1];
    lines.offsets((idx)line, at);
    const Item* from = items ? items + line * length : items;
    seen[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll 4
    for (u32 i = 0; i < ITEMS; i++) {
        u64 place = tile * TILE + i * 256 + threadIdx.x;
        if (place < length) atomicAdd(&seen[(u32)(key_of(item_at(from, x + at[0], step, place, flip)) >> shift) & 255], 1u);
    }
    __syncthreads();
    counts[(line * 256 + threadIdx.x) * tiles + tile] = seen[threadIdx.x];
}
#endif

#ifdef RADIX_SCATTER
// Moves a tile's items to their places in the order of a digit. sums[line][digit][tile] includes the tile's own count.
extern "C" __global__ void __launch_bounds__(256) radix_scatter(Nest<1> lines, const T* x, u64 step, const Item* items, u64 length, u64 tiles, u64 flip, u32 shift, const i64* counts, const i64* sums, Item* out) {
    __shared__ Item sorted[TILE];
    __shared__ u64 starts[256];
    __shared__ Ranks ranks;
    u64 line = blockIdx.x / tiles, tile = blockIdx.x % tiles, begin = tile * TILE;
    u64 count = length - begin < TILE ? length - begin : TILE;
    idx at[1];
    lines.offsets((idx)line, at);
    const Item* from = items ? items + line * length : items;
    u32 first = threadIdx.x / 32 * 32 * ITEMS + threadIdx.x % 32;
    u64 entry = (line * 256 + threadIdx.x) * tiles + tile;
    starts[threadIdx.x] = (u64)(sums[entry] - counts[entry]);
    Item own[ITEMS];
    u32 digits[ITEMS], places[ITEMS];
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        u64 place = first + i * 32;
        own[i] = item_of(0xffffffffffffffffULL, place);
        if (place < count) own[i] = item_at(from, x + at[0], step, begin + place, flip);
        digits[i] = (u32)(key_of(own[i]) >> shift) & 255;
    }
    rank_digits(digits, places, ranks);
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) sorted[places[i]] = own[i];
    __syncthreads();
    // Items of one digit are neighbours now, and so they are in the output.
    for (u32 place = threadIdx.x; place < count; place += 256) {
        Item item = sorted[place];
        u32 digit = (u32)(key_of(item) >> shift) & 255;
        out[line * length + starts[digit] + (place - ranks.starts[digit])] = item;
    }
}
#endif

#ifdef SORT_GATHER
// The first `kept` of each sorted line: values and positions.
extern "C" __global__ void sort_gather(Nest<3> lines, const Item* items, const T* x, T* values, i64* indices, u64 count, u64 length, u64 kept, u64 x_step, u64 value_step, u64 index_step) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count * kept) return;
    u64 line = quotient(i, kept), k = i - line * kept;
    idx at[3];
    lines.offsets((idx)line, at);
    u64 position = position_of(items[line * length + k]);
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
struct Best { u64 image; u64 position; };

__device__ inline bool before(Best a, Best b) { return a.image < b.image || (a.image == b.image && a.position < b.position); }

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
    Best own;
    bool stale = true;
    for (u64 k = 0; k < kept; k++) {
        if (stale) {
            own.image = none;
            own.position = none;
#pragma unroll
            for (u32 i = 0; i < ITEMS; i++)
                if (open >> i & 1) {
                    Best item;
                    item.image = keys[i];
                    item.position = i * 256 + threadIdx.x;
                    if (before(item, own)) own = item;
                }
        }
        Best best = own;
        for (int mask = 16; mask > 0; mask /= 2) {
            Best other = shuffle_xor(best, mask);
            if (before(other, best)) best = other;
        }
        // Values of this round are not read any more when those of the next are written: a barrier is between them.
        __syncthreads();
        if (threadIdx.x % 32 == 0) shared[0][threadIdx.x / 32] = best.image, shared[1][threadIdx.x / 32] = best.position;
        __syncthreads();
        for (u32 w = 0; w < 8; w++) {
            Best other;
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
    u64 row = quotient(i, columns), column = i - row * columns;
    rows.offsets((idx)row, at);
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
