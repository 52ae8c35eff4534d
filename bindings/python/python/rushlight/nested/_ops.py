"""Functions of ``torch`` on nested tensors, by name."""

from .. import _C
from .._dispatch import name_of
from ._tensor import Nested, NestedTensor, StridedNested, Tensor, _torch, jagged, offsets_of, packed, padded

_nn = _C._nn

#: Functions of elements, and those that make a tensor like another.
_UNARY = frozenset(
    "abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh bernoulli bitwise_not ceil celu clamp clamp_max clamp_min clip clone "
    "conj cos cosh deg2rad detach digamma dropout alpha_dropout elu erf erfc erfinv exp exp2 expm1 float_power floor frac gelu hardshrink hardsigmoid hardswish hardtanh i0 "
    "isfinite isinf isnan isneginf isposinf leaky_relu lgamma log log10 log1p log2 logical_not logit logsigmoid mish nan_to_num neg negative positive pow rad2deg reciprocal "
    "relu relu6 round rrelu rsqrt selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink softsign sqrt square tan tanh tanhshrink threshold trunc to float "
    "double half bfloat16 int long short bool char byte invert zeros_like ones_like empty_like full_like rand_like randn_like randint_like native_dropout cpu cuda type "
    "type_as zero_ fill_ fill real imag polygamma pin_memory".split()
)
_BINARY = frozenset(
    "add sub mul div true_divide floor_divide remainder fmod maximum minimum fmax fmin atan2 eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or "
    "bitwise_xor radd rsub rmul rtruediv rdiv rpow floordiv rfloordiv mod and or xor hypot copysign logaddexp logaddexp2 xlogy multiply divide subtract lerp heaviside "
    "nextafter bitwise_left_shift bitwise_right_shift arctan2 ldexp".split()
)
_OWN = frozenset("shape dtype device ndim layout is_nested is_sparse requires_grad grad is_leaf grad_fn names is_cuda is_cpu itemsize".split())
_IDENTITIES = {"sum": 0, "mean": 0, "prod": 1, "all": True, "any": False}


def _at(x, dim):
    """The dimension of a cell for one of the nested tensor."""
    rank = x.dim()
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    dim = dim % rank
    if dim == 0:
        raise RuntimeError("the batch dimension of a nested tensor is not supported here; use unbind()")
    return dim - 1


def _ragged(x):
    """The ragged dimension of the cells; None in the strided layout."""
    return x._ragged_idx - 1 if isinstance(x, NestedTensor) else None


def _each(x, compute, ragged=None):
    return x._with([compute(cell) for cell in x._cells], ragged)


def _rebuilt(x, parts):
    """Components as a nested tensor like another."""
    if isinstance(x, StridedNested):
        return StridedNested.make(parts)
    starts, lengths = x._extents()
    r = x._ragged_idx - 1
    if x._lengths is None and parts and r < parts[0].dim() and [p.shape[r] for p in parts] == lengths:
        return NestedTensor(_torch.cat(parts, r), x._offsets, _ragged_idx=r + 1)
    return jagged(parts)


def _unary(func, x, *args, **kwargs):
    args = [a._cells[0] if isinstance(a, Nested) else a for a in args]
    made = [func(cell, *args, **kwargs) for cell in x._cells]
    return x if all(a is b for a, b in zip(made, x._cells)) else x._with(made)


def _mismatch(name, a, b):
    shapes = [getattr(t, "_size", None) or (t.shape if not isinstance(t, StridedNested) else f"{t._count()} components") for t in (a, b)]
    return RuntimeError(f"cannot call binary pointwise function {name} with inputs of shapes {shapes[0]} and {shapes[1]}")


def _for_cells(x, other, name):
    """A plain operand as one for each cell."""
    if not isinstance(other, Tensor) or other.dim() == 0:
        return [other] * len(x._cells)
    while other.dim() > 1 and other.shape[0] == 1:
        other = other.squeeze(0)
    rank = x.dim()
    if other.dim() < rank:
        r = _ragged(x)
        if r is None or r < rank - 1 - other.dim() or other.shape[r - (rank - 1 - other.dim())] == 1:
            return [other] * len(x._cells)
        raise _mismatch(name, x, other)
    if other.dim() > rank or other.shape[0] != x._count():
        raise _mismatch(name, x, other)
    if isinstance(x, StridedNested):
        return list(other.unbind(0))
    if other.shape[x._ragged_idx] != 1:
        raise _mismatch(name, x, other)
    rows = _torch.repeat_interleave(_torch.arange(x._count(), device=x.device), x._offsets.diff(), output_size=x._values.shape[x._ragged_idx - 1])
    if x._lengths is not None:
        raise NotImplementedError(f"{name}: a jagged tensor with gaps and a tensor with a batch dimension are not supported; call contiguous() first")
    return [other.select(x._ragged_idx, 0).index_select(0, rows).movedim(0, x._ragged_idx - 1)]


def _pointwise(name):
    def run(func, *args, **kwargs):
        nested = next(a for a in [*args, *kwargs.values()] if isinstance(a, Nested))
        spread = []
        for arg in args:
            if isinstance(arg, Nested):
                if not nested._lengths_equal(arg):
                    raise _mismatch(name, nested, arg)
                spread.append(arg._cells)
            else:
                spread.append(_for_cells(nested, arg, name))
        kwargs = {k: v._cells[0] if isinstance(v, Nested) else v for k, v in kwargs.items()}
        return nested._with([func(*parts, **kwargs) for parts in zip(*spread)])

    return run


def _in_place(name):
    run = _pointwise(name)

    def change(func, x, *args, **kwargs):
        run(func, x, *args, **kwargs)
        return x

    return change


# Products.


def linear(func, input, weight, bias=None):
    if _ragged(input) == input.dim() - 2:
        raise RuntimeError("linear(): not supported for nested tensors whose last dimension is ragged")
    return _each(input, lambda cell: func(cell, weight, bias))


def matmul(func, a, b):
    if isinstance(a, Nested) and not isinstance(b, Nested) and b.dim() <= 2 and _ragged(a) != a.dim() - 2:
        return _each(a, lambda cell: _torch.matmul(cell, b))
    if not isinstance(a, Nested) and a.dim() <= 2 and isinstance(b, Nested) and _ragged(b) not in (b.dim() - 3, b.dim() - 2):
        return _each(b, lambda cell: _torch.matmul(a, cell))
    nested = a if isinstance(a, Nested) else b
    lefts, rights = (t._parts() if isinstance(t, Nested) else list(t.unbind(0)) for t in (a, b))
    if len(lefts) != len(rights):
        raise RuntimeError(f"matmul: expected batches of the same size, got {len(lefts)} and {len(rights)}")
    parts = [_torch.matmul(p, q) for p, q in zip(lefts, rights)]
    if isinstance(nested, NestedTensor) and isinstance(a, Nested) and isinstance(b, Nested) and _ragged(a) == a.dim() - 2 and _ragged(b) == b.dim() - 3:
        # The ragged dimension is summed over.
        return _torch.stack(parts)
    if isinstance(nested, NestedTensor):
        lengths = nested._extents()[1]
        r = next((d for d in range(parts[0].dim()) if [p.shape[d] for p in parts] == lengths), None)
        if r is not None and nested._lengths is None and len({tuple(n for d, n in enumerate(p.shape) if d != r) for p in parts}) == 1:
            return NestedTensor(_torch.cat(parts, r), nested._offsets, _ragged_idx=r + 1)
        return jagged(parts)
    return StridedNested.make(parts)


def attention(func, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """Each sequence by itself: there is nothing to pad and nothing to mask."""
    operands = [query, key, value]
    nested = next(t for t in operands if isinstance(t, Nested))
    lists = [t._parts() if isinstance(t, Nested) else list(t.expand(nested._count(), *t.shape[1:]).unbind(0)) for t in operands]
    if len({len(parts) for parts in lists}) != 1:
        raise RuntimeError("scaled_dot_product_attention: expected nested query, key and value of the same batch size")
    if attn_mask is not None:
        if not isinstance(attn_mask, Nested):
            raise RuntimeError("scaled_dot_product_attention: attn_mask of nested tensors must be nested; each sequence has a mask of its own size")
        masks = attn_mask._parts()
    else:
        masks = [None] * len(lists[0])
    made = [
        func(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), m, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa).squeeze(0)
        for q, k, v, m in zip(*lists, masks)
    ]
    return _rebuilt(query if isinstance(query, Nested) else nested, made)


def layer_norm(func, input, normalized_shape, *args, **kwargs):
    count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    r = _ragged(input)
    if r is not None and r >= input.dim() - 1 - count:
        raise RuntimeError("layer_norm(): normalizing over the ragged dimension is not supported for nested tensors")
    return _each(input, lambda cell: func(cell, normalized_shape, *args, **kwargs))


def embedding(func, input, weight, *args, **kwargs):
    return _each(input, lambda cell: func(cell, weight, *args, **kwargs))


def _soft(func, input, dim=None, *args, **kwargs):
    at = _at(input, dim)
    if at != _ragged(input):
        return _each(input, lambda cell: func(cell, at, *args, **kwargs))
    filled = padded(input, float("-inf"))
    return packed(func(filled, dim % input.dim(), *args, **kwargs), input)


# Reductions.


def _dims(x, dim):
    return sorted({d % x.dim() for d in ([dim] if isinstance(dim, int) else dim)})


def _bound(x, largest):
    if x.is_floating_point():
        return float("inf") if largest else float("-inf")
    from .. import iinfo

    return getattr(iinfo(x.dtype), "max" if largest else "min")


def reduction(name):
    several = name in ("max", "min")

    def run(func, x, dim=None, keepdim=False, **kwargs):
        if isinstance(dim, Nested) or isinstance(dim, Tensor):
            return _pointwise(name)(func, x, dim)
        if dim is None or dim == () or dim == []:
            whole = x._values if isinstance(x, NestedTensor) and x._lengths is None else _torch.cat([part.reshape(-1) for part in x._parts()])
            return func(whole, **kwargs)
        dims = _dims(x, dim)
        if isinstance(x, StridedNested) or 0 not in dims and x._ragged_idx not in dims:
            at = [d - 1 for d in dims]
            if at[0] < 0:
                raise RuntimeError(f"{name}(): the batch dimension of a nested tensor of the strided layout cannot be reduced; use unbind()")
            made = [func(cell, at[0] if isinstance(dim, int) else at, keepdim, **kwargs) for cell in x._cells]
            ragged = None if keepdim or isinstance(x, StridedNested) else x._ragged_idx - sum(d < x._ragged_idx for d in dims)
            if several:
                return type(made[0])([x._with([m[i] for m in made], ragged) for i in (0, 1)])
            return x._with(made, ragged)
        if x._ragged_idx not in dims:
            raise RuntimeError(f"{name}(): not supported along the batch dimension but not the ragged dimension for NestedTensor")
        if 0 in dims:
            if x._lengths is not None or several:
                raise RuntimeError(f"{name}(): not supported along the batch dimension here; use values()")
            made = func(x._values, [d - 1 for d in dims if d], keepdim, **kwargs)
            return made.unsqueeze(0) if keepdim else made
        if len(dims) > 1 and name in ("mean", "max", "min", "argmax", "argmin"):
            raise RuntimeError(f"{name}(): not supported across the ragged dimension and others for NestedTensor; reduce them one after the other")
        if name == "mean":
            lengths = _C.tensor(x._extents()[1], device=x.device).reshape(-1, *([1] * (x.dim() - (1 if keepdim else 2))))
            return _torch.sum(padded(x, 0), dims[0], keepdim, **kwargs) / lengths
        fill = _IDENTITIES.get(name)
        fill = _bound(x, name in ("min", "amin", "argmin")) if fill is None else fill
        return func(padded(x, fill), dims[0] if isinstance(dim, int) or several else dims, keepdim, **kwargs)

    return run


# Views.


def transpose(func, x, dim0, dim1):
    a, b = _at(x, dim0), _at(x, dim1)
    r = _ragged(x)
    moved = None if r is None else (b if r == a else a if r == b else r) + 1
    return _each(x, lambda cell: cell.transpose(a, b), moved)


def permute(func, x, *dims):
    dims = list(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else list(dims)
    dims = [d % x.dim() for d in dims]
    if dims[0] != 0:
        raise ValueError("Permute is not supported on the batch dimension for jagged NT")
    return _each(x, lambda cell: cell.permute([d - 1 for d in dims[1:]]), None if _ragged(x) is None else dims.index(x._ragged_idx))


def unsqueeze(func, x, dim):
    dim = dim % (x.dim() + 1)
    if dim == 0:
        raise RuntimeError("unsqueeze(): not supported for the batch dimension of NestedTensor")
    return _each(x, lambda cell: cell.unsqueeze(dim - 1), None if _ragged(x) is None else x._ragged_idx + (dim <= x._ragged_idx))


def squeeze(func, x, dim):
    at = _at(x, dim)
    if at == _ragged(x):
        return x
    changed = all(cell.shape[at] == 1 for cell in x._cells)
    return _each(x, lambda cell: cell.squeeze(at), None if _ragged(x) is None else x._ragged_idx - (changed and at + 1 < x._ragged_idx))


def select(func, x, dim, index):
    if dim % x.dim() == 0:
        return x._parts()[index]
    at = _at(x, dim)
    if at == _ragged(x):
        return _torch.stack([part.select(at, index) for part in x._parts()])
    return _each(x, lambda cell: cell.select(at, index), None if _ragged(x) is None else x._ragged_idx - (at + 1 < x._ragged_idx))


def reshape(func, x, *shape):
    shape = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else list(shape)
    if shape[0] not in (-1, x._count()):
        raise RuntimeError(f"view(): For now nested view cannot change or be called on the batch dimension: {x._count()} components, got shape {shape}")
    inner = shape[1:]
    if isinstance(x, StridedNested):
        def made(part):
            wanted = [part.shape[i] if n == -1 and i < part.dim() and inner.count(-1) > 1 else n for i, n in enumerate(inner)]
            if wanted.count(-1) == 1 and wanted.index(-1) < part.dim():
                rest = 1
                for n in wanted:
                    rest *= 1 if n == -1 else n
                i = wanted.index(-1)
                if rest * part.shape[i] != part.numel():
                    raise RuntimeError(f"reshape: a component of shape {tuple(part.shape)} does not fit {shape}; -1 keeps the size of its dimension")
            return part.reshape(wanted)

        return StridedNested.make([made(part) for part in x._components])
    own = x._size[x._ragged_idx]
    places = [i for i, n in enumerate(inner) if n == own]
    if not places:
        places = [i for i, n in enumerate(inner) if n == -1]
        if not places:
            raise RuntimeError(f"view(): cannot view shape {x._size} as {tuple(shape)}: the ragged dimension is missing")
    r = places[0]
    inner[r] = x._values.shape[x._ragged_idx - 1]
    return x._with([getattr(x._values, "view" if name_of(func) == "view" else "reshape")(inner)], r + 1)


def flatten(func, x, start_dim=0, end_dim=-1):
    first, last = _at(x, start_dim), _at(x, end_dim)
    r = _ragged(x)
    if r is not None and first <= r <= last and first != last:
        raise RuntimeError("flatten(): the ragged dimension of a nested tensor cannot be merged with others")
    return _each(x, lambda cell: cell.flatten(first, last), None if r is None else x._ragged_idx - (last - first if last < r else 0))


def unflatten(func, x, dim, sizes):
    at = _at(x, dim)
    if at == _ragged(x):
        raise RuntimeError("unflatten(): the ragged dimension of a nested tensor cannot be split")
    return _each(x, lambda cell: cell.unflatten(at, sizes), None if _ragged(x) is None else x._ragged_idx + (len(sizes) - 1 if at < _ragged(x) else 0))


def unbind(func, x, dim=0):
    if dim % x.dim() == 0:
        return tuple(x._parts())
    at = _at(x, dim)
    if at == _ragged(x):
        raise RuntimeError("unbind(): the ragged dimension of a nested tensor has no one size")
    return tuple(select(func, x, dim, i) for i in range(x._cells[0].shape[at]))


def _pieces(func, x, size, dim=0, **kwargs):
    if dim % x.dim() == 0:
        parts = x._parts()
        count = -(-len(parts) // size) if name_of(func) == "chunk" else size
        starts = range(0, len(parts), count) if isinstance(count, int) else [sum(count[:i]) for i in range(len(count))]
        ends = [s + count for s in starts] if isinstance(count, int) else [s + n for s, n in zip(starts, count)]
        return tuple((jagged if isinstance(x, NestedTensor) else StridedNested.make)(parts[a:b]) for a, b in zip(starts, ends))
    at = _at(x, dim)
    if at == _ragged(x):
        raise RuntimeError(f"{name_of(func)}(): not supported for the ragged dimension of NestedTensor")
    pieces = [func(cell, size, at) for cell in x._cells]
    return tuple(x._with(list(cells)) for cells in zip(*pieces))


def narrow(func, x, dim, start, length):
    return item(func, x, (slice(None),) * (dim % x.dim()) + (slice(start, start + length),))


def item(func, x, index):
    index = list(index) if isinstance(index, tuple) else [index]
    if any(i is None or isinstance(i, (Tensor, list)) for i in index):
        raise NotImplementedError("a nested tensor is indexed by numbers and slices; use unbind() or values()")
    if Ellipsis in index:
        at = index.index(Ellipsis)
        index[at:at + 1] = [slice(None)] * (x.dim() - len(index) + 1)
    first, rest = index[0], tuple(index[1:])
    if isinstance(first, int):
        part = x._parts()[first]
        return part[rest] if rest else part
    if first != slice(None):
        parts = x._parts()[first]
        x = jagged(parts) if isinstance(x, NestedTensor) else StridedNested.make(parts)
    if not rest:
        return x
    r = _ragged(x)
    if r is not None and r < len(rest) and rest[r] != slice(None):
        if isinstance(rest[r], int):
            made = [part[rest] for part in x._parts()]
            return _torch.stack(made)
        return jagged([part[rest] for part in x._parts()])
    return _each(x, lambda cell: cell[rest], None if r is None else x._ragged_idx - sum(isinstance(i, int) for i in rest[:r]))


def cat(func, tensors, dim=0):
    first = next(t for t in tensors if isinstance(t, Nested))
    if dim % first.dim() == 0:
        parts = [p for t in tensors for p in (t._parts() if isinstance(t, Nested) else t.unbind(0))]
        return jagged(parts) if isinstance(first, NestedTensor) else StridedNested.make(parts)
    at = _at(first, dim)
    if any(not isinstance(t, Nested) or not first._lengths_equal(t) for t in tensors):
        raise RuntimeError("cat(): expected all tensors in list to be nested, of the same raggedness")
    if at == _ragged(first):
        return jagged([_torch.cat(parts, at) for parts in zip(*(t._parts() for t in tensors))])
    return first._with([_torch.cat(cells, at) for cells in zip(*(t._cells for t in tensors))])


def stack(func, tensors, dim=0):
    first = tensors[0]
    dim = dim % (first.dim() + 1)
    if dim == 0 or any(not isinstance(t, Nested) or not first._lengths_equal(t) for t in tensors):
        raise RuntimeError("stack(): expected nested tensors of the same raggedness, and another dimension than the batch's")
    return first._with([_torch.stack(cells, dim - 1) for cells in zip(*(t._cells for t in tensors))], None if _ragged(first) is None else first._ragged_idx + (dim <= first._ragged_idx))


def contiguous(func, x, memory_format=None):
    if isinstance(x, NestedTensor) and x._lengths is not None:
        r = x._ragged_idx - 1
        return NestedTensor(_torch.cat(x._parts(), r), offsets_of(x._extents()[1], x.device), _ragged_idx=r + 1)
    return x if x.is_contiguous() else _each(x, lambda cell: cell.contiguous())


def where(func, condition, input, other):
    return _pointwise("where")(func, condition, input, other)


def masked_fill(func, x, mask, value):
    return _pointwise("masked_fill")(func, x, mask, value)


def masked_select(func, x, mask):
    kept = mask._values if isinstance(mask, Nested) else mask
    if not isinstance(x, NestedTensor) or x._values.dim() != 1:
        raise NotImplementedError("masked_select: nested tensors are jagged here, of two dimensions; use unbind()")
    lengths = [int(part.sum()) for part in NestedTensor(kept.to(_C.int64), x._offsets)._parts()]
    return NestedTensor(x._values.masked_select(kept), offsets_of(lengths, x.device))


def copy_(func, x, source, non_blocking=False):
    if not isinstance(source, Nested) or x._count() != source._count():
        raise RuntimeError("copy_ only supports Nested Tensors that have same size and offsets")
    for cell, other in zip(x._cells, source._cells):
        cell.copy_(other)
    return x


def equal(func, a, b):
    if not (isinstance(a, Nested) and isinstance(b, Nested)) or a._count() != b._count():
        return False
    return all(_torch.equal(p, q) for p, q in zip(a._parts(), b._parts()))


def same_size(func, a, b):
    return [p.shape for p in a._parts()] == [p.shape for p in b._parts()]


_FUNCTIONS = {
    "linear": linear, "matmul": matmul, "mm": matmul, "bmm": matmul, "scaled_dot_product_attention": attention, "layer_norm": layer_norm, "rms_norm": layer_norm,
    "embedding": embedding, "softmax": _soft, "log_softmax": _soft, "transpose": transpose, "swapaxes": transpose, "swapdims": transpose, "permute": permute,
    "unsqueeze": unsqueeze, "squeeze": squeeze, "select": select, "view": reshape, "reshape": reshape, "flatten": flatten, "unflatten": unflatten, "unbind": unbind,
    "split": _pieces, "chunk": _pieces, "split_with_sizes": _pieces, "narrow": narrow, "getitem": item, "cat": cat, "stack": stack, "contiguous": contiguous,
    "where": where, "masked_fill": masked_fill, "masked_select": masked_select, "copy_": copy_, "equal": equal, "is_same_size": same_size,
    **{name: reduction(name) for name in ("sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "all", "any")},
}


def handle(func, args, kwargs):
    """The result of a function of ``torch`` with a nested argument."""
    name = name_of(func)
    if getattr(func, "__name__", "") == "__get__" and name in _OWN:
        return getattr(args[0], name)
    if kwargs.get("out") is not None:
        raise NotImplementedError(f"{name}: out= is not supported for nested tensors; use the result")
    if name in ("T", "mT"):
        return transpose(func, args[0], -1, -2)
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](func, *args, **kwargs)
    if name in _BINARY or name in ("pow", "clamp") and len(args) > 1 and isinstance(args[1], Tensor):
        return _pointwise(name)(func, *args, **kwargs)
    if name in _UNARY:
        return _unary(func, *args, **kwargs)
    if name.endswith("_") and name[:-1] in _BINARY or name in ("iadd", "isub", "imul", "itruediv"):
        return _in_place(name)(func, *args, **kwargs)
    if name.endswith("_") and name[:-1] in _UNARY:
        for cell in args[0]._cells:
            func(cell, *args[1:], **kwargs)
        return args[0]
    own = next((vars(kind)[name] for kind in (type(args[0]) if args else Nested).__mro__ if kind is not Tensor and issubclass(kind, Nested) and name in vars(kind)), None)
    if own is not None and args and isinstance(args[0], Nested):
        return own(*args, **kwargs) if callable(own) else own.__get__(args[0])
    inner = getattr(func, "__wrapped__", None)
    if inner is not None:
        return inner(*args, **kwargs)
    raise NotImplementedError(f"{name}: not supported for nested tensors; use unbind() or to_padded_tensor()")
