// Attention's scores, a block of rows at a time, between products (see attention.rs).
//
// T: the dtype of queries, keys, values and output; M: of the mask. MASK: 0 none, 1 bool (false is masked out), 2
// added. DROPOUT: whether there is any. Rows of scores are [images * heads, rows, stride], of the arithmetic type R.

typedef struct {
    ulong heads, rows, s, stride, first, l;
    // Strides of images, heads, rows and columns.
    long mask[4];
    uint causal;
    // Dropout: an element is dropped if the 24 bits of its uniform are below this number. The element's position in the
    // whole score matrix selects its word. Head 0 of image 0 of this launch is head `head`; images are `image_heads`
    // apart, heads `head_step`.
    uint below;
    ulong seed, offset, head, image_heads, head_step;
} Block;

#define PLACES                                                            \
    const size_t row = get_group_id(0), z = get_group_id(1);              \
    const size_t position = b.first + row;                                \
    /* Keys that the row sees. */                                         \
    const size_t n = b.causal && position + 1 < b.s ? position + 1 : b.s; \
    const size_t at = (z * b.rows + row) * b.stride;

// The scores of vector i with the mask applied.
inline V masked(V x, const __global M* mask, size_t i, size_t n, long stride) {
#if MASK == 0
    return x;
#else
    R some[LANES];
#if LANES == 1
    some[0] = x;
#else
    WRITE_V(x, some);
#endif
    for (int l = 0; l < LANES; l++) {
        if (i + l >= n) break;
#if MASK == 1
        if (!mask[(long)(i + l) * stride]) some[l] = -INFINITY;
#else
        some[l] += (R)LOAD_M(mask, (long)(i + l) * stride);
#endif
    }
    return READ_V(some);
#endif
}

// Vector i after dropout, scaled; `word` is the row's first word.
inline V dropped(V x, const Block b, ulong word, size_t i, R scale) {
#if DROPOUT
    R some[LANES];
    WRITE_V(x * scale, some);
    ulong have = ~(ulong)0;
    uint words[4];
    for (int l = 0; l < LANES; l++) {
        const ulong w = word + i + l;
        if (w / 4 != have) {
            have = w / 4;
            vstore4(philox_block(b.seed, b.offset, have), 0, words);
        }
        if (words[w % 4] >> 8 < b.below) some[l] = 0;
    }
    return READ_V(some);
#else
    return x;
#endif
}
#define FIRST_WORD (((b.head + z / b.heads * b.image_heads + z % b.heads * b.head_step) * b.l + position) * b.s)

PARTS(S)

#ifdef FORWARD
// Converts scores to exponentials (zero if dropped) and writes factors[z, row], which scales them to probabilities:
// zero for a row that sees no key. lse: [image, head, l] with strides of images and heads.
__kernel GROUP_OF_ROW void attention_rows(const Block b, __global R* scores, const __global M* mask, __global R* lse,
                                          const ulong lse_image, const ulong lse_head, __global R* factors,
                                          const R scale) {
    SHARED
    PLACES
    scores += at;
    mask += (long)(z / b.heads) * b.mask[0] + (long)(z % b.heads) * b.mask[1] + (long)position * b.mask[2];
    V best = (V)(R)-INFINITY, sum = (V)(R)0;
    EACH_VECTOR(i, n) {
        const V x = masked(load_part_S(scores, i, n, -INFINITY), mask, i, n, b.mask[3]);
        if (MASK) store_part_S(scores, i, n, x);
        best = LARGER(best, x);
    }
    R top = ROW_LARGEST(best);
    // If every key is masked out, any finite reference gives exponentials of zero.
    top = top == -INFINITY ? 0 : top;
    EACH_VECTOR(i, b.s) {
        V e = (V)(R)0;
        if (i < n) {
            e = EXP_DOWN(load_part_S(scores, i, n, -INFINITY) - top);
            sum += e;
        }
        store_part_S(scores, i, b.s, dropped(e, b, FIRST_WORD, i, scale));
    }
    const R total = ROW_SUM(sum);
    if (IS_FIRST) {
        factors[z * b.rows + row] = total == 0 ? 0 : (R)1 / total;
        lse[z / b.heads * lse_image + z % b.heads * lse_head + position] = top + log(total);
    }
}
#endif

#ifdef BACKWARD
typedef struct { long out[4], dout[4]; ulong size; } Outputs;

// Converts scores to probabilities with dropout, and their gradients `d` to gradients of the scores before `factor`,
// the factor of all scores.
__kernel GROUP_OF_ROW void attention_rows_backward(const Block b, const Outputs o, __global R* scores, __global R* d,
                                                   const __global M* mask, const __global R* lse, const ulong lse_image,
                                                   const ulong lse_head, const __global T* out, const __global T* dout,
                                                   const R scale, const R factor) {
    SHARED
    PLACES
    const long image = z / b.heads, head = z % b.heads;
    scores += at;
    d += at;
    mask += image * b.mask[0] + head * b.mask[1] + (long)position * b.mask[2];
    out += image * o.out[0] + head * o.out[1] + (long)position * o.out[2];
    dout += image * o.dout[0] + head * o.dout[1] + (long)position * o.dout[2];
    R own = 0;
    for (size_t c = get_local_id(0); c < o.size; c += ITEMS)
        own += LOAD_T(out, (long)c * o.out[3]) * LOAD_T(dout, (long)c * o.dout[3]);
#if ITEMS == 1
    const R delta = own;
#else
    const R delta = group_sum(own, shared);
#endif
    R all = lse[image * lse_image + head * lse_head + position];
    // The probabilities of a query that sees no key are zero.
    all = all == -INFINITY ? INFINITY : all;
    EACH_VECTOR(i, b.s) {
        V p = (V)(R)0, slope = (V)(R)0;
        if (i < n) {
            p = exp(masked(load_part_S(scores, i, n, -INFINITY), mask, i, n, b.mask[3]) - all);
            slope = p * factor * (dropped(load_part_S(d, i, n, 0), b, FIRST_WORD, i, scale) - delta);
        }
        store_part_S(scores, i, b.s, dropped(p, b, FIRST_WORD, i, scale));
        store_part_S(d, i, b.s, slope);
    }
}
#endif
