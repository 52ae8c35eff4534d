"""``torch.nn.functional.grouped_mm``: products of groups of rows, columns or summands with a matrix each, as mixtures of experts need them."""

from .. import _C

_DTYPES = (_C.float32, _C.bfloat16, _C.float16)


def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Products of the groups that end at ``offs`` (int32): rows of ``mat_a`` with matrices of ``mat_b`` (2D, 3D), matrices of ``mat_a`` with columns of
    ``mat_b`` (3D, 2D), columns of ``mat_a`` with rows of ``mat_b`` (2D, 2D; one product for each group). Two batches without ``offs`` multiply as ``bmm``.

    Reads ``offs``, so a GPU is waited for.
    """
    for name, matrix in (("mat_a", mat_a), ("mat_b", mat_b)):
        if matrix.dtype not in _DTYPES:
            raise RuntimeError(f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got {matrix.dtype}")
        if matrix.dim() not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    if mat_a.dtype != mat_b.dtype:
        raise RuntimeError(f"Expected mat_a and mat_b to have the same dtype, got {mat_a.dtype} and {mat_b.dtype}")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    batches = mat_a.dim() == 3, mat_b.dim() == 3
    if (offs is None) != all(batches):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype is not None and out_dtype != mat_a.dtype:
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")
    if all(batches):
        return mat_a.bmm(mat_b)
    if offs.dtype != _C.int32:
        raise RuntimeError("Offsets have to be int32")
    if offs.dim() != 1 or any(batch and matrix.shape[0] != len(offs) for batch, matrix in zip(batches, (mat_a, mat_b))):
        raise RuntimeError("matrix batch sizes have to match")
    # The dimension that has the groups: rows, columns or summands.
    length = mat_b.shape[1] if batches[0] else mat_a.shape[0] if batches[1] else mat_a.shape[1]
    ends = offs.tolist()
    sizes = [end - start for start, end in zip([0, *ends], ends)]
    if any(size < 0 for size in sizes) or sum(sizes) > length:
        raise RuntimeError(f"grouped_mm: offsets {ends} do not ascend to at most {length}")
    rest = length - sum(sizes)
    if batches[1]:
        parts, others = mat_a.split([*sizes, rest]), mat_b.unbind()
        done = [part.mm(other) for part, other in zip(parts, others) if part.shape[0]]
        dim, shape = 0, (rest, mat_b.shape[2])
    elif batches[0]:
        parts, others = mat_b.split([*sizes, rest], 1), mat_a.unbind()
        done = [other.mm(part) for part, other in zip(parts, others) if part.shape[1]]
        dim, shape = 1, (mat_a.shape[1], rest)
    else:
        pairs = zip(mat_a.split([*sizes, rest], 1)[:-1], mat_b.split([*sizes, rest])[:-1])
        return _C._torch.stack([a.mm(b) for a, b in pairs])
    if rest or not done:
        # PyTorch leaves what follows the last group unset.
        done.append(mat_a.new_zeros(shape))
    return _C._torch.cat(done, dim)
