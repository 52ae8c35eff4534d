"""Functions of ``torch`` on sparse tensors, by name."""

from .. import _C
from .._dispatch import name_of
from .._functions import broadcast_shapes
from ._make import empty_like, full_like, new, new_empty, ones_like, random_like, zeros_like, zeros_of
from ._products import addmm, addmv, bmm, hspmm, matmul, mv, scalar_name, sspaddmm
from ._reductions import any_of, norm, soft, sum_all
from ._shapes import (
    as_complex, as_real, broadcast_to, coo_of, index_selected, item, joined, like, narrowed, permuted, resized, selected, stacked, transposed, unsqueezed,
)
from ._tensor import _OWN, Sparse, SparseCOO, SparseCompressed, Tensor, _torch

#: Functions of elements that keep zeros.
_KEEPING = frozenset(
    "abs asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac isinf isnan isneginf isposinf log1p neg positive rad2deg relu round sgn sign signbit sin sinh sqrt "
    "tan tanh trunc square conj conj_physical resolve_conj resolve_neg angle real imag nan_to_num bool float double half bfloat16 int long short char byte".split()
)
#: Those that give the same for the sum of entries and the entries of a sum.
_LINEAR = frozenset("neg positive conj conj_physical resolve_conj resolve_neg real imag deg2rad rad2deg float double half bfloat16 int long".split())
_ALIASES = {"arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctanh": "atanh", "negative": "neg", "absolute": "abs", "fix": "trunc"}


def _unary(name):
    """A function of elements, and what it does in place."""
    base = name.rstrip("_")
    base = _ALIASES.get(base, base)
    if base not in _KEEPING:
        return None

    def run(x, *args, **kwargs):
        if name == "abs_" and x.is_complex():
            raise RuntimeError("In-place abs is not supported for complex tensors; use abs")
        if isinstance(x, SparseCOO) and base not in _LINEAR:
            if name.endswith("_") and not x._coalesced:
                raise RuntimeError(f"{base}_ requires coalesced input; call .coalesce() first")
            x = x.coalesce()
        return x._as(getattr(x._data, base)(*args, **kwargs))

    return _in_place(run) if name.endswith("_") else run


def _number(value):
    return isinstance(value, (int, float, complex)) or isinstance(value, Tensor) and not isinstance(value, Sparse) and value.dim() == 0


def _times(a, b):
    """The product of two sparse tensors, which may broadcast in dense dimensions: entries of indices that both have."""
    if a.dim() == 0 == b.dim():
        dtype = _C.promote_types(a.dtype, b.dtype)
        a, b = (a, b) if a._nnz() >= b._nnz() else (b, a)
        return a._as(a._data.to(dtype) * b.to_dense().to(dtype))
    for x, other in ((a, b), (b, a)):
        if x.dim() == 0:
            return _scaled("mul")(other, x.to_dense())
    x, y = coo_of(a).coalesce(), coo_of(b).coalesce()
    count = x.sparse_dim()
    if count != y.sparse_dim() or x.dim() != y.dim() or x.shape[:count] != y.shape[:count]:
        raise RuntimeError(
            "mul(sparse, sparse) expects sparse inputs with equal dimensionality, number of sparse dimensions, and shape of sparse dimensions, "
            f"got {list(x.shape)} and {list(y.shape)} with {count} and {y.sparse_dim()} sparse dimensions"
        )
    keys, others = x.keys(), y.keys()
    at = _torch.searchsorted(others, keys).clamp(max=max(others.shape[0] - 1, 0))
    kept = (others[at] == keys).nonzero().reshape(-1) if others.shape[0] else keys[:0]
    values = x._data[kept] * y._data[at[kept]]
    return like(SparseCOO.make(x._index[0][:, kept], values, (*x.shape[:count], *values.shape[1:]), True), a)


def _scaled(compute):
    """A product or quotient: by a number, by a dense tensor, of two sparse ones."""

    def run(a, b, *, rounding_mode=None):
        kwargs = {} if rounding_mode is None else {"rounding_mode": rounding_mode}
        if not isinstance(a, Sparse):
            if compute != "mul":
                raise RuntimeError(f"{compute}: a dense tensor divided by a sparse one is not supported; call .to_dense() first")
            a, b = b, a
        if kwargs and isinstance(a, SparseCOO):
            a = a.coalesce()
        if _number(b):
            return a._as(getattr(a._data, compute)(b, **kwargs))
        if not isinstance(b, Sparse):
            if b.shape == a.shape:
                return a._as(getattr(a._data, compute)(a._picked(b), **kwargs))
            size = broadcast_shapes(a.shape, b.shape)
            coo = coo_of(a) if a.shape == size else broadcast_to(a, size)
            return like(coo._as(getattr(coo._data, compute)(coo._picked(b.expand(size)), **kwargs)), a)
        if compute != "mul":
            raise RuntimeError(f"Sparse division requires a scalar or zero-dim dense tensor divisor (got shape {list(b.shape)} for divisor)")
        return _times(a, b)

    return run


def _same_size(x, y):
    if x.shape != y.shape:
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size {list(x.shape)} while other has size {list(y.shape)}; "
            "the sum of a dense and a sparse tensor does not broadcast"
        )


def _sum_of_sparse(a, b, factor):
    x, y = coo_of(a), coo_of(b)
    if x.shape != y.shape:
        if isinstance(a, SparseCompressed):
            raise RuntimeError(f"Expected input tensors to have the same shape, but got tensor `self` with shape {list(x.shape)} and tensor `other` with shape {list(y.shape)}")
        raise RuntimeError(f"add: expected sizes of 'self' and 'other' to match, but {list(x.shape)} != {list(y.shape)}")
    dtype = _C.promote_types(x.dtype, y.dtype)
    first, second = x._as(x._data.to(dtype)), y._as((y._data if factor == 1 else y._data * factor).to(dtype))
    if x.sparse_dim() != y.sparse_dim():
        if not (x._nnz() and y._nnz()):
            return like(first if x._nnz() else second, a)
        raise RuntimeError(f"add: expected 'self' and 'other' to have same density, but 'self' has {x.sparse_dim()} sparse dimensions while 'other' has {y.sparse_dim()} sparse dimensions")
    made = SparseCOO.make(_torch.cat([x._index[0], y._index[0]], 1), _torch.cat([first._data, second._data]), x.shape, False)
    return like(made.coalesce() if x._coalesced and y._coalesced else made, a)


def sum_of(sign):
    def run(a, b, *, alpha=1):
        factor = sign * alpha
        if isinstance(a, Sparse) and isinstance(b, Sparse):
            return _sum_of_sparse(a, b, factor)
        if isinstance(a, Sparse):
            if _number(b):
                raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
            _same_size(a, b)
            if isinstance(a, SparseCompressed):
                # PyTorch's sum of a compressed and a dense tensor: the factor is the sparse one's in either order.
                return a.to_dense() * factor + b if sign == 1 else a.to_dense() - b * alpha
            return a.to_dense() + b * factor
        if not isinstance(a, Tensor):
            raise RuntimeError("add: a number and a sparse tensor have no sparse sum; call .to_dense() first")
        _same_size(a, b)
        return a + b.to_dense() * factor

    return run


def masked(dense, mask):
    """The elements of a dense tensor at the indices of a sparse one."""
    if isinstance(dense, Sparse):
        dense = dense.to_dense()
    return mask._as(mask._picked(dense))


def _floor(a, b, **kwargs):
    """A floor division by a number."""
    if isinstance(b, Sparse) or isinstance(b, Tensor) and b.dim():
        raise RuntimeError(f"Sparse floor division requires a scalar or zero-dim dense tensor divisor (got shape {list(b.shape)} for divisor)")
    a = a.coalesce() if isinstance(a, SparseCOO) else a
    return a._as(_torch.floor_divide(a._data, b))


def _power(x, exponent):
    if not _number(exponent) or exponent == 0:
        raise RuntimeError("pow: a sparse tensor is raised to a number other than 0; call .to_dense() first")
    x = x.coalesce() if isinstance(x, SparseCOO) else x
    return x._as(x._data ** exponent)


def _in_place(compute):
    def run(x, *args, **kwargs):
        if not isinstance(x, Sparse):
            # A dense tensor changed by a sparse one.
            made = compute(x, *args, **kwargs)
            return x.copy_(made.to_dense() if isinstance(made, Sparse) else made)
        return _become(x, compute(x, *args, **kwargs))

    return run


def _become(x, made):
    """Gives a sparse tensor the entries of a result."""
    if not _C.can_cast(made.dtype, x.dtype):
        raise RuntimeError(f"result type {scalar_name(made.dtype)} can't be cast to the desired output type {scalar_name(x.dtype)}")
    x._index, x._data, x._sizes = made._index, made._data.to(x.dtype), made._sizes
    if isinstance(x, SparseCOO):
        x._coalesced = made._coalesced
    return x


def _copied(x, source, non_blocking=False):
    if isinstance(x, SparseCompressed):
        if x.layout != source.layout:
            raise RuntimeError(f"copy of sparse compressed tensors having different layouts is not supported. self layout is {x.layout} and src layout is {source.layout}")
        different = next((d for d, (a, b) in enumerate(zip(x.shape, source.shape)) if a != b), None)
        if different is not None or x.dim() != source.dim():
            raise RuntimeError(f"expected shapes of self and src to match along dimension {different} for {x.layout} layout but got {list(x.shape)} and {list(source.shape)}")
        if x._nnz() != source._nnz():
            raise RuntimeError(f"only sparse compressed tensors with the same number of specified elements are supported. Got {x._nnz()} and {source._nnz()}")
    if not (isinstance(x, Sparse) and isinstance(source, Sparse)):
        layouts = [t.layout for t in (x, source)]
        raise RuntimeError(f"copy_() between dense and sparse Tensors is not implemented! Found self of {layouts[0]} and src of {layouts[1]}; call .to_dense() or .to_sparse() first")
    if x.shape != source.shape:
        raise RuntimeError(f"copy_: sparse tensors do not broadcast, got {list(x.shape)} and {list(source.shape)}")
    return source._as(source._data.to(x.dtype).clone())


def _equal(a, b):
    return bool(a.shape == b.shape and (a.to_dense() == b.to_dense()).all())


def _result_type(a, b):
    from .._functions import result_type

    return result_type(*(_torch.empty((0,) * t.dim(), dtype=t.dtype) if isinstance(t, Sparse) else t for t in (a, b)))


def _resized_as(x, other):
    return resized(x, other.shape, other.sparse_dim(), other.dense_dim())


def _is_contiguous(x, memory_format=None):
    if isinstance(x, SparseCompressed):
        raise RuntimeError(f"Sparse {'CSR' if x._by_row else 'CSC'} tensors do not have is_contiguous")
    return False


_FUNCTIONS = {
    # Of elements.
    "mul": _scaled("mul"), "div": _scaled("div"), "rmul": _scaled("mul"), "add": sum_of(1), "radd": sum_of(1), "sub": sum_of(-1), "rsub": lambda a, b, **k: sum_of(-1)(b, a, **k),
    "pow": _power, "floor_divide": _floor, "floordiv": _floor, "type_as": lambda x, other: x.to(other.dtype), "view_as_real": as_real, "view_as_complex": as_complex,
    # Products.
    "matmul": matmul, "mm": matmul, "mv": mv, "smm": matmul, "spmm": matmul, "rmatmul": lambda a, b: matmul(b, a), "addmm": addmm, "sspaddmm": sspaddmm, "saddmm": addmm,
    "hspmm": hspmm, "hsmm": hspmm, "dsmm": matmul, "addmv": addmv, "bmm": bmm,
    # Sizes and entries.
    "t": transposed, "transpose": transposed, "swapaxes": transposed, "swapdims": transposed, "permute": permuted, "unsqueeze": unsqueezed, "select": selected,
    "narrow": narrowed, "narrow_copy": narrowed, "index_select": index_selected, "getitem": item, "cat": joined, "stack": stacked, "sparse_mask": masked,
    "zeros_like": zeros_like, "empty_like": empty_like, "rand_like": random_like("rand_like"), "randn_like": random_like("randn_like"),
    "ones_like": ones_like, "full_like": full_like, "fill_": _in_place(full_like), "is_contiguous": _is_contiguous, "new_empty": new_empty, "new_zeros": new_empty,
    # Reductions and comparisons.
    "sum": sum_all, "norm": norm, "vector_norm": lambda x, ord=2, *args, **kwargs: norm(x, ord, *args, **kwargs), "any": any_of, "is_nonzero": bool, "equal": _equal,
    "softmax": soft("softmax"), "log_softmax": soft("log_softmax"),
    "allclose": lambda a, b, *args, **kwargs: _torch.allclose(a.to_dense(), b.to_dense(), *args, **kwargs), "result_type": _result_type,
    # In place.
    "zero_": _in_place(zeros_like), "copy_": _in_place(_copied), "mul_": _in_place(_scaled("mul")), "div_": _in_place(_scaled("div")), "floor_divide_": _in_place(_floor),
    "add_": _in_place(sum_of(1)), "sub_": _in_place(sum_of(-1)), "imul": _in_place(_scaled("mul")), "iadd": _in_place(sum_of(1)), "isub": _in_place(sum_of(-1)),
    "itruediv": _in_place(_scaled("div")), "ifloordiv": _in_place(_floor), "pow_": _in_place(_power),
    "t_": _in_place(transposed), "transpose_": _in_place(transposed), "unsqueeze_": _in_place(unsqueezed), "resize_as_": _in_place(_resized_as), "resize_as_sparse_": _in_place(_resized_as),
    "sparse_resize_": _in_place(resized), "sparse_resize_and_clear_": _in_place(lambda x, *args: resized(x, *args, clear=True)),
}


def handle(func, args, kwargs):
    """The result of a function of ``torch`` with a sparse argument."""
    name = name_of(func)
    if getattr(func, "__name__", "") == "__get__" and name in _OWN:
        return getattr(args[0], name)
    found = _FUNCTIONS.get(name)
    if name in ("zeros", "empty") and isinstance(kwargs.get("out"), Sparse):
        out = kwargs["out"]
        made = zeros_of(out, args if isinstance(args[0], int) else args[0], kwargs.get("dtype"), kwargs.get("device"))
        return _become(out, made).requires_grad_(kwargs.get("requires_grad", False))
    found = found or _unary(name)
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


def _method(name):
    def call(self, *args, **kwargs):
        return _FUNCTIONS[name](self, *args, **kwargs)

    call.__name__ = call.__qualname__ = name
    setattr(Sparse, name, call)


for _name in ("t_", "transpose_", "unsqueeze_", "sparse_resize_", "sparse_resize_and_clear_", "resize_as_", "resize_as_sparse_", "sspaddmm", "narrow_copy", "new_empty", "new_zeros"):
    _method(_name)
Sparse.new = new
