// Indexing by tensors. Kernels check indices as they read them. They record an index out of range (see Fault) and skip
// its element.

#ifdef RESOLVE
typedef NEST(1) Nest;

// Adds the offset of index tensor `index` at position p to offsets[p]; -1 after the first index out of range.
__kernel void resolve(const Nest nest, const __global long* index, const long size, const long stride,
                      const uint is_first, __global long* offsets, const ulong count, __global Fault* fault) {
    const ulong p = get_global_id(0);
    if (p >= count) return;
    long at[1] = {0};
    NEST_OFFSETS(nest, 1, p, 0, at);
    const long before = is_first ? 0 : offsets[p];
    const long i = wrap_index(index[at[0]], size, fault);
    offsets[p] = i < 0 || before < 0 ? -1 : before + i * stride;
}
#endif

#ifdef RESOLVE_LINE
typedef NEST(2) Nest;

// The same for a scatter: offsets into the output of each element of the index tensor.
__kernel void resolve_line(const Nest nest, const __global long* index, const long size, const long stride,
                           __global long* offsets, const ulong count, __global Fault* fault) {
    const ulong p = get_global_id(0);
    if (p >= count) return;
    long at[2] = {0, 0};
    NEST_OFFSETS(nest, 2, p, 0, at);
    const long i = wrap_index(index[at[0]], size, fault);
    offsets[p] = i < 0 ? -1 : at[1] + i * stride;
}
#endif

#ifdef MOVE
typedef NEST(1) Outer;
typedef NEST(2) Inner;

// PUT: indexed[offsets[p] + r] = dense[p, r]; otherwise the reverse. E is an unsigned type of the element's size.
__kernel void move(const Outer outer, const Inner inner, const __global long* offsets, __global E* indexed,
                   __global E* dense, const ulong block) {
    const ulong r = get_global_id(0), p = get_global_id(1);
    if (r >= block) return;
    const long offset = offsets[p];
    long at[1] = {0}, in[2] = {0, 0};
    NEST_OFFSETS(outer, 1, p, 0, at);
    NEST_OFFSETS(inner, 2, r, 0, in);
#if PUT
    if (offset >= 0) indexed[offset + in[0]] = dense[at[0] + in[1]];
#else
    dense[at[0] + in[1]] = offset >= 0 ? indexed[offset + in[0]] : (E)0;
#endif
}
#endif

#ifdef GATHER
typedef NEST(3) Nest;

__kernel void gather(const Nest nest, const __global E* x, const __global long* index, __global E* out, const long size,
                     const long stride, const ulong count, __global Fault* fault) {
    const ulong i = get_global_id(0);
    if (i >= count) return;
    long at[3] = {0, 0, 0};
    NEST_OFFSETS(nest, 3, i, 0, at);
    const long k = wrap_index(index[at[1]], size, fault);
    out[at[0]] = k < 0 ? (E)0 : x[at[2] + k * stride];
}
#endif
