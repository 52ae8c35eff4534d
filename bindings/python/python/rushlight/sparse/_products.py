"""Products of matrices, at least one of them sparse."""

from .. import _C
from ._shapes import coo_of, like, ranges, transposed
from ._tensor import Sparse, SparseCOO, SparseCompressed, _torch, compressed

_NAMES = {
    _C.float16: "Half", _C.bfloat16: "BFloat16", _C.float32: "Float", _C.float64: "Double", _C.complex64: "ComplexFloat", _C.complex128: "ComplexDouble",
    _C.int64: "Long", _C.int32: "Int", _C.int16: "Short", _C.int8: "Char", _C.uint8: "Byte", _C.bool: "Bool",
}


def scalar_name(dtype):
    """A dtype as PyTorch's errors name it."""
    return _NAMES.get(dtype, str(dtype))


def layout_name(x):
    """A layout as PyTorch's errors name it."""
    if isinstance(x, SparseCompressed):
        return "SparseCsr" if x._by_row else "SparseCsc"
    return "Sparse" if isinstance(x, Sparse) else "Strided"


def row_major(x):
    """Rows, columns and values of a matrix."""
    if isinstance(x, SparseCompressed):
        return (*x._ordered(), x._data)  # a matrix: its callers refuse batches
    return x._index[0][0], x._index[0][1], x._data


def matmul(a, b, reduce="sum"):
    """The product of matrices, at least one of them sparse. Only the product of two sparse ones is sparse."""
    for t in (a, b):
        if isinstance(t, Sparse) and (t.dim() != 2 or t.dense_dim()):
            raise RuntimeError(f"matmul: sparse operands are matrices without dense dimensions, got shape {list(t.shape)} and {t.dense_dim()} dense dimensions")
    if isinstance(a, Sparse) and isinstance(b, Sparse):
        return _sparse_product(a, b)
    if isinstance(b, Sparse):
        if a.dim() == 1:
            return matmul(transposed(b), a)
        if a.dim() != 2:
            raise RuntimeError(f"matmul: a dense operand before a sparse matrix has one or two dimensions, got {a.dim()}")
        return matmul(transposed(b), a.t()).t()
    vector = b.dim() == 1
    if vector and a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mv: expected self.size(-1) == vec.size(-1), got {a.shape[1]} and {b.shape[0]}")
    b = b.unsqueeze(1) if vector else b
    if b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, a.shape))} and {'x'.join(map(str, b.shape))})")
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}")
    rows, columns, values = row_major(a)
    terms = values.unsqueeze(1) * b.index_select(0, columns)
    out = _torch.zeros((a.shape[0], b.shape[1]), dtype=terms.dtype, device=terms.device)
    if reduce == "sum":
        made = out.index_add(0, rows, terms)
    else:
        made = out.index_reduce(0, rows, terms, reduce, include_self=False)
    return made.squeeze(1) if vector else made


def _sparse_product(a, b):
    """Each entry of a meets the row of b that its column names."""
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})")
    if a.dtype != b.dtype:
        raise RuntimeError(f"mat1 dtype {scalar_name(a.dtype)} does not match mat2 dtype {scalar_name(b.dtype)}")
    rows, columns, values = row_major(coo_of(a))
    other = b if isinstance(b, SparseCompressed) and b._by_row else compressed(coo_of(b), True)
    offsets, found = other._index
    entry, place = ranges(offsets[columns], offsets[columns + 1] - offsets[columns])
    made = SparseCOO.make(_torch.stack([rows[entry], found[place]]), values[entry] * other._data[place], (a.shape[0], b.shape[1]), False)
    return like(made.coalesce(), a)


def mv(a, vector):
    """A sparse matrix with a vector."""
    if a.dim() != 2 or vector.dim() != 1:
        raise RuntimeError(f"mv: two tensor dim should be 2 and 1, but got SparseTensor Dim: {a.dim()} Tensor Dim: {vector.dim()}")
    return matmul(a, vector)


def bmm(a, b):
    """Sparse matrices with dense ones, pair by pair: one product of a matrix of blocks."""
    if not isinstance(a, Sparse):
        return bmm(transposed(b, 1, 2), a.transpose(1, 2)).transpose(1, 2)
    if isinstance(b, Sparse):
        raise NotImplementedError("bmm: the second operand of two sparse ones must be dense; call .to_dense()")
    if a.dim() != 3 or b.dim() != 3:
        raise RuntimeError(f"batch1 and batch2 must be 3D tensors, got {a.dim()} and {b.dim()} dimensions")
    (count, rows, inner), columns = a.shape, b.shape[2]
    if tuple(b.shape[:2]) != (count, inner):
        raise RuntimeError(f"bmm: expected a second operand of size [{count}, {inner}, n], got {list(b.shape)}")
    matrix, row, column = coo_of(a)._index[0]
    blocks = SparseCOO.make(_torch.stack([matrix * rows + row, matrix * inner + column]), coo_of(a)._data, (count * rows, count * inner), False)
    return matmul(blocks, b.reshape(count * inner, columns)).reshape(count, rows, columns)


def addmm(input, a, b, *, beta=1, alpha=1):
    from ._ops import sum_of

    made = matmul(a, b)
    if isinstance(made, Sparse):
        made = made._as(made._data * alpha) if alpha != 1 else made
        return sum_of(1)(input if beta == 1 else input * beta, made)
    made = made if alpha == 1 else made * alpha
    base = input.to_dense() if isinstance(input, Sparse) else input
    return made if beta == 0 else (base if beta == 1 else base * beta) + made


def _expanded(x, batch):
    """A compressed matrix repeated for a batch."""
    if not isinstance(x, SparseCompressed) or x._batch or not batch:
        return x
    index = [i.expand(*batch, *i.shape) for i in x._index]
    return SparseCompressed.make(*index, x._data.expand(*batch, *x._data.shape), (*batch, *x.shape), x._by_row)


def sampled_addmm(x, a, b, beta, alpha):
    """A product of dense matrices at the entries of a sparse one."""
    if not isinstance(x, Sparse):
        raise RuntimeError(f"sampled_addmm: Expected self to have sparse csr layout, but got {layout_name(x)}")
    for name, operand in (("mat1", a), ("mat2", b)):
        if isinstance(operand, Sparse):
            raise RuntimeError(f"sampled_addmm: Expected {name} to have strided layout, but got {layout_name(operand)}")
        if operand.dim() < 2:
            raise RuntimeError(f"sampled_addmm: Expected {name} to be a matrix, got {operand.dim()}-D tensor")
    if a.shape[:-2] != b.shape[:-2]:
        raise RuntimeError(f"sampled_addmm: Expected mat1 and mat2 to have the same batch size, but got {list(a.shape[:-2])} and {list(b.shape[:-2])}")
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied ({a.shape[-2]}x{a.shape[-1]} and {b.shape[-2]}x{b.shape[-1]})")
    x = _expanded(x, tuple(a.shape[:-2]))
    for d, name, operand in ((-2, "mat1", a), (-1, "mat2", b)):
        if x.shape[d] != operand.shape[d]:
            raise RuntimeError(f"sampled_addmm: self.shape[{d}] must match {name}.shape[{d}], got {x.shape[d]} and {operand.shape[d]}")
    *places, rows, columns = x._ordered() if isinstance(x, SparseCompressed) else x._index[0]
    products = (a[(*places, rows)] * b.transpose(-1, -2)[(*places, columns)]).sum(-1).reshape(x._data.shape)
    return x._as(products * alpha if beta == 0 else x._data * beta + products * alpha)


def addmv(input, mat, vec, *, beta=1, alpha=1):
    made = matmul(mat, vec) * alpha
    return made if beta == 0 else input * beta + made


def sspaddmm(input, mat1, mat2, *, beta=1, alpha=1):
    """``addmm`` of a sparse input with a sparse result."""
    for name, operand, wanted in (("self", input, True), ("mat1", mat1, True), ("mat2", mat2, False)):
        if isinstance(operand, SparseCOO) != wanted:
            raise RuntimeError(f"sspaddmm: expected '{name}' to have {'sparse' if wanted else 'strided'} layout, got '{name}' with layout {layout_name(operand)}")
    return addmm(input, mat1, mat2, beta=beta, alpha=alpha).to_sparse()


def hspmm(mat1, mat2):
    """The product of a sparse matrix with a dense one, as a sparse tensor of rows."""
    return matmul(mat1, mat2).to_sparse(1)
