"""Sums, norms and softmax of sparse tensors."""

from .. import _C
from ._derivatives import total as total_of_leaf
from ._shapes import coo_of, like, unsqueezed, wrapped
from ._tensor import Sparse, SparseCOO, _torch


def total(x, dim=None, keepdim=False, *, dtype=None):
    """The sum of all elements, dense; along dimensions as in ``torch.sparse.sum``."""
    coo = coo_of(x)
    if dtype is None and not (x.is_floating_point() or x.is_complex()):
        dtype = _C.int64
    data = coo._data if dtype is None else coo._data.to(dtype)
    if dim is None or dim == () or dim == []:
        return data.sum()
    given = [wrapped(d, coo.dim()) for d in ([dim] if isinstance(dim, int) else dim)]
    dims = set(given)
    if len(dims) != len(given):
        raise RuntimeError(f"sum: a dimension appears multiple times in the list of dims {list(dim)}")
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


def sum_all(x, dim=None, keepdim=False, *, dtype=None):
    """``Tensor.sum``: of all elements of a leaf, the gradient is dense."""
    if dim is None and dtype is None and x.requires_grad and x.is_leaf:
        return total_of_leaf(x)
    return total(x, dim, keepdim, dtype=dtype)


def any_of(x):
    """Whether any element is not zero."""
    return x._data.any()


def soft(function):
    """A softmax over the entries that are there, along a dimension."""

    def run(x, dim, *, dtype=None):
        coo = coo_of(x).coalesce()
        coo = coo if dtype is None else coo._as(coo._data.to(dtype))
        dim = wrapped(dim, coo.dim())
        count = coo.sparse_dim()
        if dim >= count:
            return like(coo._as(getattr(_torch, function)(coo._data, dim - count + 1)), x)
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
        return like(coo._as(made), x)

    return run


def norm(x, p=2, dim=None, keepdim=False, *, dtype=None, ord=None):
    """The norm of all elements."""
    p = p if ord is None else ord
    if keepdim:
        raise RuntimeError("norm_sparse currently does not support keepdim=True; call .to_dense() first")
    if dtype is not None and p == "fro":
        raise ValueError("dtype argument is not supported in frobenius norm; convert the tensor first")
    if dim is not None:
        raise RuntimeError("norm_sparse currently only supports full reductions, so 'dim' must either be empty or contain all dimensions of the input")
    if dtype is not None:
        raise RuntimeError("norm_sparse currently does not support 'dtype' argument; convert the tensor first")
    return (x.coalesce() if isinstance(x, SparseCOO) else x)._data.norm(2 if p in ("fro", None) else p)
