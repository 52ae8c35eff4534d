// Shared by the attention kernels on tensor cores: the problem's sizes, mask and dropout of scores, the running
// softmax, and the store of accumulator rows.

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f
#define LOWEST ((float)-INFINITY)

struct Spec {
    const T *q, *k, *v;
    const void* mask;
    u64 q_strides[4], k_strides[4], v_strides[4], mask_strides[4];
    u64 batch, heads, kv_heads, l, s, d, dv;
    double scale, p;
    Philox stream;
};

struct Saved { const T *out, *dout; u64 out_strides[4], dout_strides[4]; const float* lse; };

// Transposes the words of four neighbouring threads, four each: word k of thread t becomes word t of thread k.
__device__ inline void transpose_words(u32* words) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 m = 1; m < 4; m *= 2) {
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            if (k & m) continue;
            u32 other = __shfl_xor_sync(FULL_WARP, lane & m ? words[k] : words[k + m], m);
            if (lane & m) words[k] = other;
            else words[k + m] = other;
        }
    }
}

#if MASK
// A mask's elements: truth values or numbers to add.
#if MASK == 1
typedef u8 Mask;
#else
typedef T Mask;
#endif
__device__ inline const Mask* mask_of(const Spec& s, u64 b, u64 h, int query, int key) {
    const u64* strides = s.mask_strides;
    return (const Mask*)s.mask + b * strides[0] + h * strides[1] + (u64)query * strides[2] + (u64)key * strides[3];
}

// The mask of a thread's step, loaded while scores are multiplied. Fragment c has two neighbouring columns, 8 * c from
// the first, of its first row and of the row eight further down. Outside of the mask the elements are zero.
struct Masks {
    union Pair { u32 word; Mask each[2]; };
    // Columns that a thread loads of each row where rows are whole vectors, and words of them.
    static constexpr int SHARE = STEP / 4, SHARE_WORDS = SHARE * sizeof(Mask) / 4;
    // A pair of columns for each row and fragment or, if `shared`, the thread's share of the rows: four threads load a
    // row together and exchange its elements when they are used.
    alignas(16) u32 words[2][STEP / 8];
    bool shared;

    // From the address of the first element, the strides and the numbers of rows and columns from it on. `aligned`:
    // neighbours come in one load.
    __device__ void load(const Mask* from, u64 row, u64 column, int rows, int columns, bool aligned) {
        const Mask* at[2] = {from, from + 8 * row};
        shared = false;
        auto each = [&](auto pair_at) {
#pragma unroll
            for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    Pair pair = {0};
                    pair_at(pair, r, c * 8);
                    words[r][c] = pair.word;
                }
            }
        };
        if (rows <= 8 || columns <= STEP - 7) {
            each([&](Pair& pair, int r, int c) {
                if (r * 8 < rows && c < columns) pair.each[0] = at[r][c * column];
                if (r * 8 < rows && c + 1 < columns) pair.each[1] = at[r][(c + 1) * column];
            });
        } else if (aligned) {
            each([&](Pair& pair, int r, int c) { *(Vec<Mask, 2>*)pair.each = *(const Vec<Mask, 2>*)(at[r] + c); });
        } else {
            each([&](Pair& pair, int r, int c) { pair.each[0] = at[r][c * column], pair.each[1] = at[r][(c + 1) * column]; });
        }
    }
    // Rows are queries.
    __device__ void load_queries(const Spec& s, u64 b, u64 h, int query, int key) {
        const u64* strides = s.mask_strides;
        u64 odd = (u64)s.mask / sizeof(Mask) | strides[0] | strides[1] | strides[2];
        const int vector = 16 / sizeof(Mask);
        // The warp's first row and column.
        int t = threadIdx.x % 4, top = query - (int)(threadIdx.x % 32 / 4), left = key - 2 * t;
        if (strides[3] != 1 || odd % vector != 0 || top + 16 > (int)s.l || left + STEP > (int)s.s) {
            return load(mask_of(s, b, h, query, key), strides[2], strides[3], (int)s.l - query, (int)s.s - key, strides[3] == 1 && odd % 2 == 0);
        }
        shared = true;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const Mask* row = mask_of(s, b, h, query + 8 * r, left);
#if MASK == 1
            typedef Vec<u32, SHARE_WORDS> Words;
            *(Words*)words[r] = *(const Words*)(row + t * SHARE);
#else
            // Eight neighbours of every 32: those of fragment t, of which each thread uses one pair.
#pragma unroll
            for (int k = 0; k < SHARE / 8; k++) *(Vec16*)(words[r] + 4 * k) = *(const Vec16*)(row + (4 * k + t) * 8);
#endif
        }
    }
    // Rows are keys.
    __device__ void load_keys(const Spec& s, u64 b, u64 h, int query, int key) {
        const u64* strides = s.mask_strides;
        bool aligned = strides[2] == 1 && (((u64)s.mask / sizeof(Mask) | strides[0] | strides[1] | strides[3]) & 1) == 0;
        load(mask_of(s, b, h, query, key), strides[3], strides[2], (int)s.s - key, (int)s.l - query, aligned);
    }
    // Masks scores and multiplies them: with log2(e) in the scale, scores in units of log2.
    __device__ void apply(float (&p)[STEP / 8][4], float scale) {
#if MASK == 1
        if (shared) {
            // A bit per column of the share: the first row's below the other's.
            u32 own = 0, lines[2][STEP / 32] = {};
#pragma unroll
            for (int r = 0; r < 2; r++) {
#pragma unroll
                for (int w = 0; w < SHARE_WORDS; w++) {
                    u32 x = words[r][w], tops = (((x & 0x7f7f7f7f) + 0x7f7f7f7f) | x) & 0x80808080;
                    own |= (tops * 0x00204081u >> 28) << (16 * r + 4 * w);
                }
            }
#pragma unroll
            for (int n = 0; n < 4; n++) {
                u32 theirs = __shfl_sync(FULL_WARP, own, n, 4);
                lines[0][n * SHARE / 32] |= (theirs & 0xffff) << n * SHARE % 32;
                lines[1][n * SHARE / 32] |= theirs >> 16 << n * SHARE % 32;
            }
#pragma unroll
            for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    u32 mine = lines[e / 2][c / 4] >> threadIdx.x % 4 * 2;
                    p[c][e] = mine >> (c % 4 * 8 + e % 2) & 1 ? p[c][e] * scale : LOWEST;
                }
            }
            return;
        }
#else
        if (shared) {
#pragma unroll
            for (int k = 0; k < SHARE / 8; k++) {
                transpose_words(words[0] + 4 * k);
                transpose_words(words[1] + 4 * k);
            }
        }
#endif
#pragma unroll
        for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                Pair pair;
                pair.word = words[e / 2][c];
                Mask m = pair.each[e % 2];
#if MASK == 1
                p[c][e] = m ? p[c][e] * scale : LOWEST;
#else
                p[c][e] = p[c][e] * scale + convert<float>(m) * LOG2E;
#endif
            }
        }
    }
};
#endif

// Keys that query i sees.
__device__ inline int seen_by(const Spec& s, int i) { return CAUSAL && i + 1 < (int)s.s ? i + 1 : (int)s.s; }

// Sets a thread's scores to `hidden` for the keys, from `first` on, that its queries (`row` and `row + 8`) do not see.
__device__ inline void hide_unseen(float (&p)[STEP / 8][4], const Spec& s, int row, int first, float hidden) {
    int seen[2] = {seen_by(s, row) - first, seen_by(s, row + 8) - first};
#pragma unroll
    for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
        for (int e = 0; e < 4; e++) p[c][e] = c * 8 + e % 2 < seen[e / 2] ? p[c][e] : hidden;
    }
}

#if DROPOUT
// The largest word that drops its probability: of 24 bits, as a fraction, those below p do.
__device__ inline u32 last_dropped(const Spec& s) {
    float steps = ceilf((float)s.p * 16777216.0f);
    return (u32)((u64)(steps < 1 ? 1.0f : steps) * 256 - 1);
}

// A bit per probability of a thread's step: whether dropout keeps it. Fragment c has the words 8 * c columns on, of two
// neighbouring columns in a row and in the row eight further down. The loop is not unrolled: the code of the random
// words is long, and neighbours often share one block of words.
__device__ inline u32 each_kept(const Spec& s, u64 first, u64 column, u64 row) {
    u32 bits = 0, words[4], dropped = last_dropped(s);
    u64 block = ~0ull;
    Philox stream = resolved(s.stream);
#pragma unroll 1
    for (u32 n = 0; n < 4 * STEP / 8; n++) {
        u64 word = first + (n / 4 * 8 + n % 2) * column + (n / 2 % 2 * 8) * row;
        if (word / 4 != block) philox_words(stream, block = word / 4, words);
        u32 at = (u32)word % 4, mine = at == 0 ? words[0] : at == 1 ? words[1] : at == 2 ? words[2] : words[3];
        bits |= (u32)(mine > dropped) << n;
    }
    return bits;
}
// A bit per word of a block, whether dropout keeps it, of STEP / 8 blocks that lie `apart`.
__device__ inline u32 blocks_kept(const Spec& s, u64 block, u64 apart) {
    Philox stream = resolved(s.stream);
    u32 bits = 0, dropped = last_dropped(s);
#pragma unroll 2
    for (u32 c = 0; c < STEP / 8; c++) {
        u32 words[4];
        philox_words(stream, block + c * apart, words);
#pragma unroll
        for (u32 n = 0; n < 4; n++) bits |= (u32)(words[n] > dropped) << (c * 4 + n);
    }
    return bits;
}

// The bits where rows are queries, from the word of a thread's first probability on. Four neighbouring words of a row
// belong to two threads: the first draws those of its row, the second those of the row eight further down.
__device__ inline u32 kept_by_queries(const Spec& s, u64 first) {
    if (s.s % 4 != 0) return each_kept(s, first, 1, s.s);
    bool second = threadIdx.x & 1;
    u32 mine = blocks_kept(s, (first + (second ? 8 * s.s - 2 : 0)) / 4, 2), other = __shfl_xor_sync(FULL_WARP, mine, 1);
    return second ? (other >> 2 & 0x33333333u) | (mine & 0xccccccccu) : (mine & 0x33333333u) | (other & 0x33333333u) << 2;
}

// The bits where rows are keys. Four neighbouring words belong to four threads; each draws those of one of its four
// probabilities in a fragment.
__device__ inline u32 kept_by_keys(const Spec& s, u64 first) {
    if (s.s % 4 != 0) return each_kept(s, first, s.s, 1);
    u32 own = threadIdx.x / 4 % 4, bits = 0;
    u32 mine = blocks_kept(s, (first - own + own % 2 * s.s + own / 2 * 8) / 4, 2 * s.s);
#pragma unroll
    for (u32 n = 0; n < 4; n++) {
        u32 drawn = n == 0 ? mine : __shfl_xor_sync(FULL_WARP, mine, 4 * n);
        bits |= (drawn >> own & 0x11111111u) << (own ^ n);
    }
    return bits;
}
// Applies dropout to x, element e of fragment c.
#define DROPPED(x, c, e) (kept_bits >> ((c) * 4 + (e)) & 1 ? (x) * enlarged : 0.0f)
#else
#define DROPPED(x, c, e) (x)
#endif

// The running softmax of a thread's two rows, in units of log2.
struct Softmax {
    float top[2], sum[2];
    __device__ void begin() {
        top[0] = top[1] = LOWEST;
        sum[0] = sum[1] = 0;
    }
    // Converts a step's scores, scaled by `by`, to exponentials. Earlier sums must be multiplied by the correction.
    __device__ void weigh(float (&p)[STEP / 8][4], float by, u32 kept_bits, float enlarged, float (&correction)[2]) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float high = p[0][2 * r];
#pragma unroll
            for (int c = 0; c < STEP / 8; c++) high = fmaxf(high, fmaxf(p[c][2 * r], p[c][2 * r + 1]));
            high = fmaxf(high, __shfl_xor_sync(FULL_WARP, high, 1));
            high = fmaxf(high, __shfl_xor_sync(FULL_WARP, high, 2));
            // Exponents may slightly exceed the base, so it is seldom raised. With dropout, which scales up, they may
            // not.
            high = high * by > top[r] + (DROPOUT ? 0 : 8) ? high * by : top[r];
            // As long as every key is masked out, differences would be NaN.
            float base = high == LOWEST ? 0.0f : high, total = 0;
            correction[r] = exp2_fast(top[r] - base);
            top[r] = high;
#pragma unroll
            for (int c = 0; c < STEP / 8; c++) {
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++) {
                    float x = exp2_fast(fmaf(p[c][e], by, -base));
                    total += x;
                    p[c][e] = DROPPED(x, c, e);
                }
            }
            sum[r] = sum[r] * correction[r] + total;
        }
    }
    // The factor of row r's weights. One thread per row writes the logarithm of its sum to `lse`.
    __device__ float end(int r, float* lse, u64 at, bool leaves) const {
        float total = sum[r];
        total += __shfl_xor_sync(FULL_WARP, total, 1);
        total += __shfl_xor_sync(FULL_WARP, total, 2);
        if (leaves) lse[at] = total == 0 ? LOWEST : top[r] * LN2 + logf(total);
        return total == 0 ? 0.0f : __fdividef(1.0f, total);
    }
};

// Multiplies a thread's two rows of accumulators.
__device__ inline void scale_rows(float (&acc)[D / 8][4], const float (&by)[2]) {
#pragma unroll
    for (int c = 0; c < D / 8; c++) acc[c][0] *= by[0], acc[c][1] *= by[0], acc[c][2] *= by[1], acc[c][3] *= by[1];
}

// Writes rows of a warp's accumulators, as halves, to rows `first..` of a tensor, 16 bytes at a time. Each group of
// four neighbouring threads transposes its words by shuffles, so that each thread holds 16 adjacent bytes.
__device__ inline void store_rows(const float (&acc)[D / 8][4], float low, float high, T* to, u64 stride, int first, int count, int d) {
    int lane = threadIdx.x % 32, row = first + lane / 4, column = lane % 4 * 8;
    T* at = to + (u64)row * stride + column;
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int n = 0; n < D / 8; n += 4) {
            Vec16 x;
#pragma unroll
            for (int k = 0; k < 4; k++) x.v[k] = packed(acc[n + k][2 * r] * (r ? high : low), acc[n + k][2 * r + 1] * (r ? high : low));
            transpose_words(x.v);
            if (row + r * 8 < count && n * 8 + column < d) *(Vec16*)(at + n * 8) = x;
        }
        at += 8 * stride;
    }
}

// A row's values for the gradients: the logarithm of its sum in units of log2 (for a row that saw no key, a value that
// makes its probabilities zero), and out . dout, which the derivative of softmax subtracts from every term.
struct Row { float log_sum, delta; };
__device__ inline float saved_sum(float lse) { return lse == LOWEST ? (float)INFINITY : lse * LOG2E; }
