// Scheduling of attention for compute capability 9.0: tasks of a block, the ring of places in shared memory that the
// copy engine fills and warpgroups consume, and the products of a warpgroup.
// The texts of fragments.cu, warpgroup.cu, bulk_copies.cu and flash_scores.cu precede this one.

#define GROUP_ROWS 64
#define BLOCK_ROWS (CONSUMERS * GROUP_ROWS)
#define THREADS ((CONSUMERS + 1) * 128)
#define PANELS (D / 64)
#define LANE (threadIdx.x % 32)

// ---- tasks ----------------------------------------------------------------------------------------------------------

// Tiles are ordered by sets of heads whose other side fits in the cache. Within a set the longest tiles come first.
// Blocks take them in rounds of alternating direction: a block with a long tile in one round gets a short one in the
// next.
struct Order { u32 tiles, heads, together; };
struct Task { u32 head, tile; };
struct Tasks {
    const Order& order;
    u32 first = 0, round = 0;
    __device__ bool next(Task& task) {
        while (first < order.heads) {
            u32 heads = min(order.together, order.heads - first), n = round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
            bool there = n < heads * order.tiles;
            if (there) task = {first + n % heads, n / heads};
            if (++round * gridDim.x >= heads * order.tiles) first += order.together, round = 0;
            if (there) return true;
        }
        return false;
    }
};

// Steps with keys that queries before `end` see.
__device__ inline int steps_before(const Spec& s, int end) {
    int keys = CAUSAL && end < (int)s.s ? end : (int)s.s;
    return (keys + STEP - 1) / STEP;
}

// ---- places in shared memory, filled by the copy engine and emptied by the groups -----------------------------------

template <int PLACES> struct Turn {
    int place = 0;
    u32 phase = 0;
    __device__ void next() {
        if (++place == PLACES) place = 0, phase ^= 1;
    }
};

// Barriers of PLACES places. `full` barriers wait for FILLERS threads. `empty` barriers wait for all warps of the
// groups, or for all threads if they read individually (EACH); operands of products are read by the whole warp.
template <int PLACES, int FILLERS = 1, bool EACH = false> struct Places {
    u64* barriers;
    enum { COUNT = 2 * PLACES };
    __device__ u64* full(const Turn<PLACES>& t) const { return barriers + t.place; }
    __device__ u64* empty(const Turn<PLACES>& t) const { return barriers + PLACES + t.place; }
    __device__ void init() const {
        for (int n = 0; n < PLACES; n++) init_barrier(barriers + n, FILLERS), init_barrier(barriers + PLACES + n, CONSUMERS * (EACH ? 128 : 4));
    }
    __device__ void until_empty(const Turn<PLACES>& t) const { wait(empty(t), t.phase ^ 1); }
    __device__ void until_full(const Turn<PLACES>& t) const { wait(full(t), t.phase); }
    // This warp has finished reading.
    __device__ void release(const Turn<PLACES>& t) const {
        if (!EACH) __syncwarp();
        if (EACH || LANE == 0) arrive(empty(t));
    }
};

// Places that hold tiles of ROWS rows.
template <int ROWS, int PLACES, bool EACH = false> struct Tiles : Places<PLACES, 1, EACH> {
    T* tiles;
    enum { SIZE = PLACES * ROWS * D };
    __device__ T* at(const Turn<PLACES>& t) const { return tiles + t.place * (ROWS * D); }
    // Copies the rows of a head from `row` on.
    __device__ void fill(const Turn<PLACES>& t, const Map& map, int row, int head, int batch) const {
        this->until_empty(t);
        ask(t, map, row, head, batch, 0);
    }
    // The same for an empty place; `more` further bytes will arrive in it.
    __device__ void ask(const Turn<PLACES>& t, const Map& map, int row, int head, int batch, u32 more) const {
        arrive_expecting(this->full(t), ROWS * D * sizeof(T) + more);
#pragma unroll
        for (int n = 0; n < PANELS; n++) copy_box(at(t) + n * (ROWS * 64), map, this->full(t), n * 64, row, head, batch);
    }
};

// Lays out shared memory: tiles from the front, barriers from the back.
struct Room {
    T* tiles;
    u64* barriers;
    template <int ROWS, int PLACES, bool EACH> __device__ void take(Tiles<ROWS, PLACES, EACH>& t) {
        t.tiles = tiles;
        tiles += t.SIZE;
        take(*(Places<PLACES, 1, EACH>*)&t);
    }
    template <int PLACES, int FILLERS, bool EACH> __device__ void take(Places<PLACES, FILLERS, EACH>& p) {
        barriers -= p.COUNT;
        p.barriers = barriers;
        if (threadIdx.x == 0) p.init();
    }
};
__device__ inline Room room(double* memory) {
    T* tiles = tiles_in(memory);
    return {tiles, (u64*)((char*)tiles + SHARED)};
}
__device__ inline void room_is_laid_out() {
    if (threadIdx.x == 0) barriers_are_ready();
    __syncthreads();
}

// ---- products of a group --------------------------------------------------------------------------------------------

// c = the group's rows of a tile of ROWS times STEP rows of another. The rows stay in shared memory: if they are kept
// in registers from step to step, ptxas 13.0 reuses their registers.
template <int ROWS> __device__ inline void times_transposed(float (&c)[STEP / 8][4], const T* rows, int group, const T* tile) {
    u32 a = lines(rows) + group * (GROUP_ROWS / 16 * NEXT_LINES), b = lines(tile);
    hold(c);
    begin_products();
    multiply<0>(c, a, b);
#pragma unroll
    for (int k = 1; k < D / 16; k++) multiply<1>(c, a + k / 4 * NEXT_PANEL(ROWS) + k % 4 * NEXT_COLUMNS, b + k / 4 * NEXT_PANEL(STEP) + k % 4 * NEXT_COLUMNS);
    end_products();
}

// acc += a step's operand times STEP rows of a tile.
__device__ inline void accumulate(float (&acc)[D / 8][4], Fragment (&a)[STEP / 16], const T* tile) {
    hold(acc);
    hold(a);
    begin_products();
#pragma unroll
    for (int k = 0; k < STEP / 16; k++) {
        // Two panels at a time, and the last one of an odd number.
#pragma unroll
        for (int n = 0; n + 1 < PANELS; n += 2) {
            multiply_panels((float(&)[16][4])acc[8 * n], a[k], panels(tile, STEP) + n * NEXT_PANEL(STEP) + k * NEXT_LINES);
        }
#if PANELS % 2
        multiply((float(&)[8][4])acc[8 * (PANELS - 1)], a[k], lines(tile) + (PANELS - 1) * NEXT_PANEL(STEP) + k * NEXT_LINES);
#endif
    }
    end_products();
}
