"""Functions of ``torch`` on sparse tensors, by name."""

from .. import _C
from .._dispatch import name_of
from ._tensor import _OWN, Sparse, SparseCOO, SparseCompressed, Tensor, _torch, compressed

#: Functions of elements that keep zeros.
_KEEPING = frozenset(
    "abs asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac isinf isnan isneginf isposinf log1p neg positive rad2deg relu round sgn sign signbit sin sinh sqrt "
    "tan tanh trunc square conj conj_physical resolve_conj angle real imag nan_to_num bool float double half bfloat16 int long short char byte".split()
)


def _coo(x):
    return x.to_sparse_coo() if isinstance(x, Sparse) else x


def _like(made, x):
    """A COO result in the layout of an operand."""
    return compressed(made, x._by_row) if isinstance(x, SparseCompressed) else made


def _unary(func, name):
    base = name[:-1] if name.endswith("_") and not name.endswith("__") else name

    def run(x, *args, **kwargs):
        x = x.coalesce() if isinstance(x, SparseCOO) and base not in ("neg", "positive", "conj", "resolve_conj", "float", "double", "half", "int", "long") else x
        made = x._as(getattr(x._data, base)(*args, **kwargs))
        return made

    return run


def _number(value):
    return isinstance(value, (int, float, complex)) or isinstance(value, Tensor) and not isinstance(value, Sparse) and value.dim() == 0


def _scaled(compute):
    """A product or quotient: by a number, by a dense tensor, of two sparse ones."""

    def run(a, b, **kwargs):
        if not isinstance(a, Sparse):
            if compute != "mul":
                raise RuntimeError(f"{compute}: a dense tensor divided by a sparse one is not supported; call .to_dense() first")
            a, b = b, a
        if _number(b):
            return a._as(getattr(a._data, compute)(b, **kwargs))
        if not isinstance(b, Sparse):
            if b.shape == a.shape:
                return a._as(getattr(a._data, compute)(a._picked(b), **kwargs))
            coo = _coo(a)
            return _like(coo._as(getattr(coo._data, compute)(coo._picked(b.expand(a.shape)), **kwargs)), a)
        if compute != "mul":
            raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor (got shape " f"{list(b.shape)} for divisor)")
        x, y = _coo(a).coalesce(), _coo(b).coalesce()
        if x.shape != y.shape:
            raise RuntimeError(f"mul operands have incompatible sizes: {list(x.shape)} and {list(y.shape)}")
        # Both have their keys in order.
        keys, others = x.keys(), y.keys()
        at = _torch.searchsorted(others, keys).clamp(max=max(others.shape[0] - 1, 0))
        kept = (others[at] == keys).nonzero().reshape(-1) if others.shape[0] else keys[:0]
        made = SparseCOO.make(x._index[0][:, kept], x._data[kept] * y._data[at[kept]], x.shape, True)
        return _like(made, a)

    return run


def _sum_of(sign):
    def run(a, b, *, alpha=1):
        if isinstance(a, Sparse) and isinstance(b, Sparse):
            x, y = _coo(a), _coo(b)
            if x.shape != y.shape and isinstance(a, SparseCompressed):
                raise RuntimeError(f"Expected input tensors to have the same shape, but got tensor `self` with shape {list(x.shape)} and tensor `other` with shape {list(y.shape)}")
            if x.shape != y.shape:
                raise RuntimeError(f"add: expected sizes of 'self' and 'other' to match, but {list(x.shape)} != {list(y.shape)}")
            dtype = _C.promote_types(x.dtype, y.dtype)
            scaled = y._data if sign * alpha == 1 else y._data * (sign * alpha)
            made = SparseCOO.make(
                _torch.cat([x._index[0], y._index[0]], 1), _torch.cat([x._data.to(dtype), scaled.to(dtype)]), x.shape, False
            )
            made = made.coalesce() if x._coalesced and y._coalesced else made
            return _like(made, a)
        if isinstance(a, Sparse):
            if _number(b):
                raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
            if isinstance(a, SparseCompressed):
                # PyTorch's sum of a compressed and a dense tensor: the factor is the sparse one's in either order.
                return a.to_dense() * (sign * alpha) + b if sign == 1 else a.to_dense() - b * alpha
            return a.to_dense() + b * (sign * alpha)
        if not isinstance(a, Tensor):
            raise RuntimeError("add: a number and a sparse tensor have no sparse sum; call .to_dense() first")
        return a + b.to_dense() * (sign * alpha)

    return run


def _row_major(x):
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
    b = b.unsqueeze(1) if vector else b
    if b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, a.shape))} and {'x'.join(map(str, b.shape))})")
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}")
    rows, columns, values = _row_major(a)
    terms = values.unsqueeze(1) * b.index_select(0, columns)
    out = _torch.zeros((a.shape[0], b.shape[1]), dtype=terms.dtype, device=terms.device)
    if reduce == "sum":
        made = out.index_add(0, rows, terms)
    else:
        made = out.index_reduce(0, rows, terms, {"mean": "mean", "amax": "amax", "amin": "amin"}[reduce], include_self=False)
    return made.squeeze(1) if vector else made


def _sparse_product(a, b):
    """Each entry of a meets the row of b that its column names."""
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})")
    rows, columns, values = _row_major(_coo(a))
    other = b if isinstance(b, SparseCompressed) and b._by_row else compressed(_coo(b), True)
    offsets, found = other._index
    starts, counts = offsets[columns], offsets[columns + 1] - offsets[columns]
    total = counts.sum().item()
    entry = _torch.repeat_interleave(_torch.arange(rows.shape[0], device=rows.device), counts)
    within = _torch.arange(total, device=rows.device) - _torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    place = starts[entry] + within
    made = SparseCOO.make(_torch.stack([rows[entry], found[place]]), values[entry] * other._data[place], (a.shape[0], b.shape[1]), False)
    return _like(made.coalesce(), a)


def transposed(x, first=0, second=1):
    count = x.dim()
    if isinstance(x, SparseCompressed):
        first, second, batch = first % count, second % count, x._batch
        size = list(x.shape)
        size[first], size[second] = size[second], size[first]
        if first == second:
            return x
        if {first, second} == {batch, batch + 1}:
            return SparseCompressed.make(*x._index, x._data, size, not x._by_row)
        if max(first, second) < batch:
            return SparseCompressed.make(*(i.transpose(first, second) for i in x._index), x._data.transpose(first, second), size, x._by_row)
        raise RuntimeError(f"transpose(): can only transpose 2D sparse compressed tensors or their batches within each, got dimensions {first} and {second} of {list(x.shape)}")
    if count == 0:
        return x
    order = list(range(count))
    first, second = first % count, second % count
    order[first], order[second] = order[second], order[first]
    return permuted(x, order)


def permuted(x, *dims):
    dims = list(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else list(dims)
    x = _coo(x)
    dims = [d % x.dim() for d in dims]
    count = x.sparse_dim()
    if sorted(dims[:count]) != list(range(count)):
        raise RuntimeError("permute: sparse and dense dimensions of a sparse tensor cannot be exchanged")
    data = x._data.permute(0, *(d - count + 1 for d in dims[count:]))
    return SparseCOO.make(x._index[0][dims[:count]], data, [x.shape[d] for d in dims], x._coalesced and dims[:count] == list(range(count)))


def total(x, dim=None, keepdim=False, *, dtype=None):
    """The sum of all elements, dense; along dimensions as in ``torch.sparse.sum``."""
    coo = _coo(x)
    if dtype is None and not (x.is_floating_point() or x.is_complex()):
        dtype = _C.int64
    data = coo._data if dtype is None else coo._data.to(dtype)
    if dim is None or dim == () or dim == []:
        return data.sum()
    dims = {d % coo.dim() for d in ([dim] if isinstance(dim, int) else dim)}
    count = coo.sparse_dim()
    dense = [d - count + 1 for d in sorted(dims) if d >= count]
    data = data.sum(dense) if dense else data
    kept = [d for d in range(count) if d not in dims]
    size = [coo.shape[d] for d in range(coo.dim()) if d not in dims]
    if not kept:
        made = data.sum(0)
    else:
        made = SparseCOO.make(coo._index[0][kept], data, size, False) if len(kept) < count else SparseCOO.make(coo._index[0], data, size, coo._coalesced)
        made = made.coalesce()
    if keepdim:
        for d in sorted(dims):
            made = unsqueezed(made, d) if isinstance(made, Sparse) else made.unsqueeze(d)
    return made


def unsqueezed(x, dim):
    x = _coo(x)
    dim = dim % (x.dim() + 1)
    size = [*x.shape[:dim], 1, *x.shape[dim:]]
    if dim > x.sparse_dim():
        return SparseCOO.make(x._index[0], x._data.unsqueeze(dim - x.sparse_dim() + 1), size, x._coalesced)
    indices = x._index[0]
    row = _torch.zeros((1, indices.shape[1]), dtype=indices.dtype, device=indices.device)
    return SparseCOO.make(_torch.cat([indices[:dim], row, indices[dim:]]), x._data, size, x._coalesced)


def selected(x, dim, index):
    if isinstance(x, SparseCompressed) and x._batch:
        dim = dim % x.dim()
        if dim >= x._batch + 2:
            raise NotImplementedError("select: not along the dense dimensions of a batch of sparse matrices; call .to_dense() first")
        if dim >= x._batch:
            raise RuntimeError("select(): selecting sparse dimensions is not supported for batched sparse compressed tensors.")
        return SparseCompressed.make(*(i.select(dim, index) for i in x._index), x._data.select(dim, index), [n for d, n in enumerate(x.shape) if d != dim], x._by_row)
    coo = _coo(x)
    dim = dim % coo.dim()
    if not -coo.shape[dim] <= index < coo.shape[dim]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(coo.shape)} at dimension {dim}")
    index = index % coo.shape[dim]
    count = coo.sparse_dim()
    if dim >= count:
        return SparseCOO.make(coo._index[0], coo._data.select(dim - count + 1, index), [n for d, n in enumerate(coo.shape) if d != dim], coo._coalesced)
    kept = (coo._index[0][dim] == index).nonzero().reshape(-1)
    data, rest = coo._data[kept], [d for d in range(count) if d != dim]
    if not rest:
        return data.sum(0).to(data.dtype)
    return SparseCOO.make(coo._index[0][rest][:, kept], data, [n for d, n in enumerate(coo.shape) if d != dim], coo._coalesced)


def narrowed(x, dim, start, length):
    coo = _coo(x)
    dim = dim % coo.dim()
    size = [length if d == dim else n for d, n in enumerate(coo.shape)]
    if dim >= coo.sparse_dim():
        return SparseCOO.make(coo._index[0], coo._data.narrow(dim - coo.sparse_dim() + 1, start, length), size, coo._coalesced)
    row = coo._index[0][dim]
    kept = ((row >= start) & (row < start + length)).nonzero().reshape(-1)
    indices = coo._index[0][:, kept].clone()
    indices[dim] -= start
    return SparseCOO.make(indices, coo._data[kept], size, coo._coalesced)


def index_selected(x, dim, index):
    coo = _coo(x)
    parts = [narrowed(coo, dim, i, 1) for i in index.tolist()]
    return joined(parts, dim) if parts else narrowed(coo, dim, 0, 0)


def item(x, index):
    index = index if isinstance(index, tuple) else (index,)
    dim = 0
    for entry in index:
        if isinstance(entry, int):
            x = selected(x, dim, entry) if isinstance(x, Sparse) else x.select(dim, entry)
        elif entry == slice(None):
            dim += 1
        elif isinstance(entry, slice) and entry.step in (None, 1):
            start, stop, _ = entry.indices(x.shape[dim])
            x = narrowed(x, dim, start, max(stop - start, 0))
            dim += 1
        else:
            raise NotImplementedError("a sparse tensor is indexed by numbers and slices; use index_select, or .to_dense() first")
    return x


def joined(tensors, dim=0):
    tensors = [_coo(t) for t in tensors]
    dim = dim % tensors[0].dim()
    if any(not isinstance(t, Sparse) for t in tensors):
        raise RuntimeError("cat: expected all tensors to be sparse")
    if dim >= tensors[0].sparse_dim():
        raise NotImplementedError("cat: sparse tensors are joined along sparse dimensions")
    indices, start = [], 0
    for t in tensors:
        moved = t._index[0].clone()
        moved[dim] += start
        start += t.shape[dim]
        indices.append(moved)
    size = list(tensors[0].shape)
    size[dim] = start
    made = SparseCOO.make(_torch.cat(indices, 1), _torch.cat([t._data for t in tensors]), size, False)
    return made.coalesce() if all(t._coalesced for t in tensors) else made


def addmm(input, a, b, *, beta=1, alpha=1):
    made = matmul(a, b)
    if isinstance(made, Sparse):
        made = made._as(made._data * alpha) if alpha != 1 else made
        return _sum_of(1)(input if beta == 1 else input * beta, made)
    made = made if alpha == 1 else made * alpha
    base = input.to_dense() if isinstance(input, Sparse) else input
    return made if beta == 0 else (base if beta == 1 else base * beta) + made


def addmv(input, mat, vec, *, beta=1, alpha=1):
    made = matmul(mat, vec) * alpha
    return made if beta == 0 else input * beta + made


def masked(dense, mask):
    """The elements of a dense tensor at the indices of a sparse one."""
    if isinstance(dense, Sparse):
        dense = dense.to_dense()
    return mask._as(mask._picked(dense))


def soft(function):
    """A softmax over the entries that are there, along a dimension."""

    def run(x, dim, *, dtype=None):
        coo = _coo(x).coalesce()
        coo = coo if dtype is None else coo._as(coo._data.to(dtype))
        dim = dim % coo.dim()
        count = coo.sparse_dim()
        if dim >= count:
            return _like(coo._as(getattr(_torch, function)(coo._data, dim - count + 1)), x)
        keys = _torch.zeros(coo._nnz(), dtype=_C.int64, device=coo.device)
        for d in range(count):
            if d != dim:
                keys = keys * coo.shape[d] + coo._index[0][d]
        groups, inverse = _torch.unique(keys, return_inverse=True)
        shape = (groups.shape[0], *coo._data.shape[1:])
        data = coo._data
        low = _torch.full(shape, float("-inf"), dtype=data.dtype, device=data.device)
        largest = low.index_reduce(0, inverse, data.detach(), "amax") if coo._nnz() else low
        moved = data - largest[inverse]
        sums = _torch.zeros(shape, dtype=data.dtype, device=data.device).index_add(0, inverse, moved.exp())
        made = moved - sums[inverse].log() if function == "log_softmax" else moved.exp() / sums[inverse]
        return _like(coo._as(made), x)

    return run


def _floor(a, b, **kwargs):
    """A floor division by a number."""
    if isinstance(b, Sparse) or isinstance(b, Tensor) and b.dim():
        raise RuntimeError(f"Sparse floor division requires a scalar or zero-dim dense tensor divisor (got shape {list(b.shape)} for divisor)")
    a = a.coalesce() if isinstance(a, SparseCOO) else a
    return a._as(_torch.floor_divide(a._data, b))


def _zeros_like(x, *, dtype=None, device=None, **kwargs):
    dtype, device = dtype or x.dtype, device or x.device
    if isinstance(x, SparseCompressed):
        offsets, batch = _torch.zeros_like(x._index[0]), x._batch
        data = _torch.zeros((*x._data.shape[:batch], 0, *x._data.shape[batch + 1 :]), dtype=dtype, device=device)
        return SparseCompressed.make(offsets, x._index[1][..., :0], data, x.shape, x._by_row)
    return SparseCOO.make(x._index[0][:, :0], _torch.zeros((0, *x._data.shape[1:]), dtype=dtype, device=device), x.shape, True)


def _power(x, exponent):
    if not _number(exponent) or exponent == 0:
        raise RuntimeError("pow: a sparse tensor is raised to a number other than 0; call .to_dense() first")
    x = x.coalesce() if isinstance(x, SparseCOO) else x
    return x._as(x._data ** exponent)


def _in_place(compute):
    def run(x, *args, **kwargs):
        if not isinstance(x, Sparse):
            # A dense tensor changed by a sparse one.
            return x.copy_(compute(x, *args, **kwargs))
        return _become(x, compute(x, *args, **kwargs))

    return run


def _become(x, made):
    """Gives a sparse tensor the entries of a result."""
    if not _C.can_cast(made.dtype, x.dtype):
        named = {_C.float32: "Float", _C.float64: "Double", _C.complex64: "ComplexFloat", _C.complex128: "ComplexDouble", _C.int64: "Long", _C.int32: "Int", _C.int16: "Short", _C.int8: "Char", _C.uint8: "Byte", _C.bool: "Bool"}
        raise RuntimeError(f"result type {named.get(made.dtype, made.dtype)} can't be cast to the desired output type {named.get(x.dtype, x.dtype)}")
    x._index, x._data, x._sizes = made._index, made._data.to(x.dtype), made._sizes
    if isinstance(x, SparseCOO):
        x._coalesced = made._coalesced
    return x


def _copied(x, source, non_blocking=False):
    if not isinstance(x, Sparse):
        raise RuntimeError("copy_() between dense and sparse Tensors is not implemented! Found self type = dense and src type = sparse; call .to_dense() first")
    source = source if isinstance(source, Sparse) else _like(source.to_sparse(), x)
    return source._as(source._data.to(x.dtype).clone())


def _norm(x, p=2, dim=None, *args, **kwargs):
    if dim is not None:
        raise NotImplementedError("norm: a sparse tensor has the norm of all elements; call .to_dense() first")
    return (x.coalesce() if isinstance(x, SparseCOO) else x)._data.norm(2 if p in ("fro", None) else p)


def _equal(a, b):
    return bool(a.shape == b.shape and (a.to_dense() == b.to_dense()).all())


def _random_like(name):
    def make(x, **kwargs):
        if isinstance(x, SparseCOO):
            raise NotImplementedError(f"{name}: not supported for sparse COO tensors; make random values and call torch.sparse_coo_tensor")
        return x._as(getattr(_torch, name)(x._data, **kwargs))

    return make


def _result_type(a, b):
    from .._functions import result_type

    return result_type(*(_torch.empty((0,) * t.dim(), dtype=t.dtype) if isinstance(t, Sparse) else t for t in (a, b)))


_FUNCTIONS = {
    "rand_like": _random_like("rand_like"), "randn_like": _random_like("randn_like"), "result_type": _result_type,
    "mul": _scaled("mul"), "div": _scaled("div"), "rmul": _scaled("mul"), "add": _sum_of(1), "radd": _sum_of(1), "sub": _sum_of(-1), "matmul": matmul, "mm": matmul,
    "mv": matmul, "smm": matmul, "spmm": matmul, "rmatmul": lambda a, b: matmul(b, a), "t": transposed, "transpose": transposed, "permute": permuted, "sum": total, "unsqueeze": unsqueezed,
    "select": selected, "narrow": narrowed, "index_select": index_selected, "getitem": item, "cat": joined, "addmm": addmm, "sspaddmm": addmm, "hspmm": matmul,
    "sparse_mask": masked, "zeros_like": _zeros_like, "empty_like": _zeros_like, "pow": _power, "norm": _norm, "dsmm": matmul, "rsub": lambda a, b, **k: _sum_of(-1)(b, a),
    "addmv": addmv, "floor_divide": _floor, "floordiv": _floor, "is_nonzero": bool, "equal": _equal, "allclose": lambda a, b, *args, **kwargs: _torch.allclose(a.to_dense(), b.to_dense(), *args, **kwargs),
    "zero_": _in_place(_zeros_like), "copy_": _in_place(_copied), "mul_": _in_place(_scaled("mul")), "div_": _in_place(_scaled("div")),
    "add_": _in_place(_sum_of(1)), "sub_": _in_place(_sum_of(-1)), "imul": _in_place(_scaled("mul")), "iadd": _in_place(_sum_of(1)), "isub": _in_place(_sum_of(-1)),
    "type_as": lambda x, other: x.to(other.dtype),
}


def handle(func, args, kwargs):
    """The result of a function of ``torch`` with a sparse argument."""
    name = name_of(func)
    if getattr(func, "__name__", "") == "__get__" and name in _OWN:
        return getattr(args[0], name)
    found = _FUNCTIONS.get(name)
    if found is None and name.rstrip("_") in _KEEPING:
        found = _unary(func, name)
        found = _in_place(found) if name.endswith("_") else found
    if found is not None:
        out = kwargs.pop("out", None)
        made = found(*args, **kwargs)
        if out is None:
            return made
        if isinstance(out, Sparse) != isinstance(made, Sparse) or isinstance(made, Sparse) and type(out) is not type(made):
            raise RuntimeError(f"{name}: the result has the layout {made.layout}, but out has {out.layout}")
        if isinstance(made, Sparse):
            return _become(out, made)
        return (out if out.shape == made.shape else out.resize_(made.shape)).copy_(made)
    own = getattr(SparseCOO if isinstance(args[0] if args else None, SparseCOO) else SparseCompressed, name, None)
    if args and isinstance(args[0], Sparse) and own is not None and getattr(Tensor, name, None) is not own:
        return own(*args, **kwargs)
    inner = getattr(func, "__wrapped__", None)
    if inner is not None:
        return inner(*args, **kwargs)
    raise NotImplementedError(f"{name}: not supported for sparse tensors; call .to_dense() first")
