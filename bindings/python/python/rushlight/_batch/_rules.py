"""Batching rules of pointwise functions, reductions, views, products and factorisations: ``RULES`` by name."""

import functools
import math

from .. import _C
from . import _INPLACE as INPLACE, _is_in_place as is_in_place, _Plain, Batched, Tensor, _torch, made_shape, name_of
from ._indices import RULES as _INDICES
from ._layers import RULES as _LAYERS


def rank(tensor):
    """The dimensions of one element of the batch."""
    return tensor._rank if type(tensor) is Batched else len(made_shape(tensor))


def tensors_of(value):
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_of(item)]
    if isinstance(value, dict):
        return tensors_of(list(value.values()))
    return []


def pointwise(level, func, *args, **kwargs):
    """A function of elements that broadcasts: all tensors get as many dimensions as the largest."""
    found = tensors_of(args) + tensors_of(kwargs)
    most = max(rank(t) for t in found)
    if len(found) > 1 and len({t.dtype for t in found}) > 1 and any(rank(t) == 0 and level.has(t) for t in found) and most:
        # A tensor without dimensions takes part in promotion like a number; its batch would not.
        dtype, single = (functools.reduce(_C.promote_types, [t.dtype for t in found if bool(rank(t)) is large]) for large in (True, False))
        dtype = _C.promote_types(dtype, single) if _category(single) > _category(dtype) else dtype
        args, kwargs = (level.map(lambda t: Batched(t._value.to(dtype), level) if level.has(t) and rank(t) == 0 and t.dtype != _C.bool else t, v) for v in (args, kwargs))
    if is_in_place(func):
        target = args[0]
        if not level.has(target):
            raise RuntimeError(INPLACE.format(func.__name__))
        func(target._value, *level.map(lambda t: level.aligned(t, target._rank), args[1:]), **level.map(lambda t: level.aligned(t, target._rank), kwargs))
        return target
    return level.wrap(func(*level.map(lambda t: level.aligned(t, most), args), **level.map(lambda t: level.aligned(t, most), kwargs)))


def _category(dtype):
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype == _C.bool else 1


def shifted(dim, count):
    """A dimension of an element as one of the batch."""
    if not isinstance(dim, int):
        return [shifted(d, count) for d in dim]
    most = max(count, 1)
    if not -most <= dim < most:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], but got {dim})")
    return dim % most + 1


def parameter(args, kwargs, at, name, default=None):
    """Takes a parameter out of a call. Returns it with the other arguments."""
    kwargs = dict(kwargs)
    if len(args) > at:
        return args[at], args[:at], args[at + 1:], kwargs
    return kwargs.pop(name, default), args, (), kwargs


def by_dim(default=None, at=1, name="dim", reduces=False, whole=None):
    """A function along dimensions of its only tensor. Without dimensions it is one of all elements."""

    def rule(level, func, *args, **kwargs):
        if name_of(func) in ("max", "min") and (tensors_of(args[1:2]) or isinstance(kwargs.get("other"), Tensor)):
            return pointwise(level, func, *args, **kwargs)
        if level.mentions(args[1:]) or level.mentions(kwargs):
            return level.loop(func, args, kwargs)
        dim, before, after, kwargs = parameter(args, kwargs, at, name, default)
        if isinstance(dim, bool) and at == 1:
            # std(input, unbiased)
            kwargs["correction"], dim = int(dim), None
        value, count = args[0]._value, args[0]._rank
        flat = value.unsqueeze(1) if count == 0 else value
        keep = reduces and bool(after[0] if after and isinstance(after[0], bool) else kwargs.get("keepdim", False))
        if dim is None or dim == () or dim == []:
            if whole is None and reduces:
                after, kwargs = after[1:] if after and isinstance(after[0], bool) else after, {k: v for k, v in kwargs.items() if k != "keepdim"}
                made = func(flat.flatten(1), *before[1:], **{name: 1}, **kwargs)
                made = _first(func, made)
                return level.wrap(level.map(lambda t: t.reshape(level.size, *[1] * count), made) if keep else made)
            moved = list(range(1, flat.dim()))
        else:
            moved = shifted(dim, count)
        if len(args) > at:
            made = func(flat, *before[1:], moved, *after, **kwargs)
        else:
            made = func(flat, *before[1:], **kwargs, **{name: moved})
        if count == 0:
            made = level.map(lambda t: t.reshape(level.size), made)
        return level.wrap(made)

    return rule


def _first(func, made):
    """Functions of all elements give values only, those of a dimension also indices."""
    return made[0] if getattr(func, "__name__", "") in ("max", "min", "median", "nanmedian") and isinstance(made, tuple) else made


def _ranked(rule, least, most, message, error=RuntimeError):
    """A rule for elements with so many dimensions."""

    def checked(level, func, *args, **kwargs):
        x = args[0] if args else next(iter(kwargs.values()))
        if not least <= rank(x) <= most:
            raise error(message.format(rank(x)))
        return rule(level, func, *args, **kwargs)

    return checked


# Views.


def _sizes(args):
    return list(args[0]) if len(args) == 1 and not isinstance(args[0], int) else list(args)


def _view(level, func, x, *size, **kwargs):
    if "dtype" in kwargs or size and isinstance(size[0], _C.dtype):
        return level.wrap(func(x._value, *size, **kwargs))
    size = _sizes(size) if size else list(kwargs.get("shape", kwargs.get("size", ())))
    return level.wrap(func(x._value, [level.size, *size]))


def _view_as(level, func, x, other):
    if not level.has(x):
        return func(x, other._value[0] if level.size else other._value.new_zeros(made_shape(other)))
    change = x._value.view if getattr(func, "__name__", "") == "view_as" else x._value.reshape
    return level.wrap(change(level.size, *made_shape(other)))


def _expand(level, func, x, *size, **kwargs):
    size = _sizes(size) if size else list(kwargs.get("size", kwargs.get("shape", ())))
    return level.wrap(level.aligned(x, len(size)).expand(level.size, *size))


def _expand_as(level, func, x, other):
    return _expand(level, func, x, *made_shape(other)) if level.has(x) else x.expand(made_shape(other))


def _repeat(level, func, x, *sizes, **kwargs):
    sizes = _sizes(sizes) if sizes else list(kwargs.get("repeats", kwargs.get("dims")))
    if getattr(func, "__name__", "") == "tile":
        sizes = [1] * (x._rank - len(sizes)) + sizes
    return level.wrap(level.aligned(x, len(sizes)).repeat(1, *sizes))


def _permute(level, func, x, *dims, **kwargs):
    dims = _sizes(dims) if dims else list(kwargs["dims"])
    return level.wrap(x._value.permute(0, *shifted(dims, x._rank)))


def _two_dims(level, func, x, *dims, **kwargs):
    names = {"transpose": ("dim0", "dim1"), "movedim": ("source", "destination"), "swapaxes": ("axis0", "axis1")}.get(getattr(func, "__name__", ""), ("dim0", "dim1"))
    first, second = (*dims, *(kwargs[n] for n in names[len(dims):]))
    if x._rank == 0:
        return level.wrap(x._value)
    return level.wrap(func(x._value, shifted(first, x._rank), shifted(second, x._rank)))


def _squeeze(level, func, x, dim=None):
    sizes = made_shape(x)
    dims = range(len(sizes)) if dim is None else [d - 1 for d in ([shifted(dim, x._rank)] if isinstance(dim, int) else shifted(dim, x._rank))]
    gone = [d for d in dims if d < len(sizes) and sizes[d] == 1]
    return level.wrap(x._value.squeeze([d + 1 for d in gone]) if gone else x._value.view_as(x._value))


def _reshaping(rule):
    """The form in place of an op that changes sizes and strides alone: the tensor gets another view of the batch."""

    def in_place(level, func, x, *args, **kwargs):
        made = rule(level, getattr(_torch, func.__name__[:-1]), x, *args, **kwargs)
        with _Plain():
            func(x, *args, **kwargs)
        x._value, x._rank = made._value, made._rank
        return x

    return in_place


def _unsqueeze(level, func, x, dim):
    return level.wrap(x._value.unsqueeze(shifted(dim, x._rank + 1)))


def _flatten(level, func, x, start_dim=0, end_dim=-1):
    if x._rank == 0:
        return level.wrap(x._value.unsqueeze(1))
    return level.wrap(x._value.flatten(shifted(start_dim, x._rank), shifted(end_dim, x._rank)))


def _ravel(level, func, x):
    return level.wrap(x._value.reshape(level.size, -1))


def _transposed(level, func, x):
    return level.wrap(x._value.transpose(1, 2) if x._rank == 2 else x._value)


def _diagonal(first, second):
    def rule(level, func, x, offset=0, dim1=first, dim2=second):
        return level.wrap(_torch.diagonal(x._value, offset, shifted(dim1, x._rank), shifted(dim2, x._rank)))

    return rule


def _diag_embed(level, func, x, offset=0, dim1=-2, dim2=-1):
    return level.wrap(_torch.diag_embed(x._value, offset, shifted(dim1, x._rank + 1), shifted(dim2, x._rank + 1)))


def _diag(level, func, x, diagonal=0):
    return level.wrap(_torch.diag_embed(x._value, diagonal) if x._rank == 1 else _torch.diagonal(x._value, diagonal, 1, 2))


def _trace(level, func, x):
    return level.wrap(_torch.diagonal(x._value, 0, 1, 2).sum(-1))


def _listed(function):
    """A function of a list of tensors: all are batched."""

    def rule(level, func, tensors, *args, **kwargs):
        values = [level.value(t) for t in tensors]
        return level.wrap(function([rank(t) for t in tensors], func, values, *args, **kwargs))

    return rule


@_listed
def _cat(ranks, func, values, dim=0, **kwargs):
    dim = kwargs.pop("axis", dim)
    # An empty vector joins tensors of any rank.
    kept = [(v, r) for v, r in zip(values, ranks) if not (r == 1 and made_shape(v)[1] == 0 and max(ranks) > 1)]
    return _torch.cat([v for v, _ in kept], shifted(dim, kept[0][1]))


@_listed
def _stack(ranks, func, values, dim=0):
    return _torch.stack(values, shifted(dim, ranks[0] + 1))


def _joined(dims, least):
    """``hstack`` and its like: tensors get ``least`` dimensions and are joined along one."""

    @_listed
    def rule(ranks, func, values):
        if least == "columns":
            return _torch.cat([v.reshape(len(v), -1, 1) if r < 2 else v for v, r in zip(values, ranks)], 2)
        made = [v.reshape(made_shape(v)[0], *_atleast(made_shape(v)[1:], least)) for v in values]
        return _torch.cat(made, dims + 1 if len(made_shape(made[0])) - 1 > 1 or dims == 0 else 1)

    return rule


def _atleast(shape, count):
    shape = tuple(shape)
    if len(shape) >= count:
        return shape
    if len(shape) == 0:
        return (1,) * count
    if len(shape) == 1 and count > 1:
        return (1, *shape, 1)[:count]
    return (*shape, 1) if count == 3 else shape


# Products.


def _matmul(level, func, a, b, **kwargs):
    ranks = rank(a), rank(b)
    if 0 in ranks:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {ranks[0]}D and {ranks[1]}D")
    left = a if not level.has(a) else a._value
    right = b if not level.has(b) else b._value
    left = left.unsqueeze(-2) if ranks[0] == 1 else left
    right = right.unsqueeze(-1) if ranks[1] == 1 else right
    most = max(*ranks, 2)
    fit = [(v, max(r, 2), level.has(t)) for v, r, t in ((left, ranks[0], a), (right, ranks[1], b))]
    left, right = (v.reshape(level.size, *[1] * (most - r), *made_shape(v)[1:]) if batched and r < most else v for v, r, batched in fit)
    made = _torch.matmul(left, right)
    made = made.squeeze(-2) if ranks[0] == 1 else made
    return level.wrap(made.squeeze(-1) if ranks[1] == 1 else made)


def _exactly(first, second):
    def rule(level, func, a, b, **kwargs):
        if (rank(a), rank(b)) != (first, second):
            raise RuntimeError(f"{getattr(func, '__name__', 'product')}: Shape mismatch: expected tensors with {first} and {second} dimensions, got {rank(a)} and {rank(b)}")
        return _matmul(level, func, a, b)

    return rule


def _plus_product(level, func, input, a, b, *, beta=1, alpha=1, **kwargs):
    name = getattr(func, "__name__", "")
    with level:
        if name.startswith("addr"):
            product = a.unsqueeze(-1) * b.unsqueeze(-2)
        elif name.startswith("addbmm"):
            product = _torch.matmul(a, b).sum(0)
        else:
            product = _torch.matmul(a, b)
        product = product if alpha == 1 else product * alpha
        made = product if beta == 0 else (input if beta == 1 else input * beta) + product
        return input.copy_(made) if name.endswith("_") else made


def _linear(level, func, input, weight, bias=None):
    if not level.has(weight) and not (bias is not None and level.has(bias)):
        return level.wrap(func(input._value, weight, bias))
    with level:
        made = _torch.matmul(input, weight.mT if rank(weight) == 2 else weight)
        return made if bias is None else made + bias


def _outer(level, func, a, b):
    with level:
        return a.unsqueeze(-1) * b.unsqueeze(-2)


def _einsum(level, func, equation, *operands, **kwargs):
    listed = len(operands) == 1 and isinstance(operands[0], (list, tuple))
    operands = list(operands[0]) if listed else list(operands)
    if not isinstance(equation, str) or not all(isinstance(t, Tensor) for t in operands):
        return level.loop(func, (equation, *operands), kwargs)
    equation = equation.replace(" ", "")
    inputs, arrow, output = equation.partition("->")
    used = set(equation)
    letter = next(c for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in used)
    terms = inputs.split(",")
    if not arrow:
        letters = inputs.replace(",", "").replace("...", "")
        output = ("..." if "..." in inputs else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    terms = [letter + term if level.has(t) else term for term, t in zip(terms, operands)]
    return level.wrap(_C._torch._einsum(f"{','.join(terms)}->{letter}{output}", [t._value if level.has(t) else t for t in operands]))


def _inner(level, func, a, b):
    with level:
        if rank(a) == 0 or rank(b) == 0:
            return a * b
        flat = _torch.matmul(a.reshape(-1, made_shape(a)[-1]), b.reshape(-1, made_shape(b)[-1]).mT)
        return flat.reshape(*made_shape(a)[:-1], *made_shape(b)[:-1])


def _dist(level, func, a, b, p=2.0):
    with level:
        return _torch.norm((a - b).reshape(-1), p)


def _clone(level, func, x, *args, **kwargs):
    if level.mentions(args):
        args = level.map(lambda t: t._value if level.has(t) else t, args)
    if not level.has(x):
        return func(x, *args, **kwargs)
    # The batch is no dimension of a memory format.
    formats = [v for v in (*args, kwargs.get("memory_format")) if isinstance(v, _C.memory_format)]
    if formats and formats[0] not in (_C.contiguous_format, _C.preserve_format):
        name = getattr(func, "__name__", "clone")
        known = "NYI: querying is_contiguous inside of vmap for memory_format other than torch.contiguous_format" if name == "contiguous" else f"NYI: Tensor.{name}"
        raise RuntimeError(f"{known}: {name}(memory_format={formats[0]}) inside vmap is only supported with memory_format torch.preserve_format or torch.contiguous_format")
    return level.wrap(func(x._value, *args, **kwargs))


def _tolerant(level, func, x, *args, **kwargs):
    """A function of matrices whose tolerances may be tensors."""
    if tensors_of(args) or tensors_of(kwargs):
        return level.loop(func, (x, *args), kwargs)
    return level.wrap(func(x._value, *args, **kwargs))


def _new(level, func, x, *args, **kwargs):
    size = _sizes(args[:1] if args and not isinstance(args[0], int) else args) if args else list(kwargs.pop("size"))
    if level.mentions(args[1:]) or level.mentions(kwargs):
        return level.loop(func, (x, *args), kwargs)
    rest = args[1:] if args and not isinstance(args[0], int) else ()
    return level.wrap(func(x._value, [level.size, *size], *rest, **kwargs))


def _copy(level, func, target, source, *args):
    if not level.has(target):
        raise RuntimeError(INPLACE.format("copy_"))
    target._value.copy_(level.aligned(source, target._rank))
    return target


def _linalg_solve(level, func, A, B, *args, **kwargs):
    if kwargs.get("left") is False or rank(B) != 1:
        return pointwise(level, func, A, B, *args, **kwargs) if rank(A) == rank(B) else level.loop(func, (A, B, *args), kwargs)
    with level:
        return func(A, B.unsqueeze(-1), *args, **kwargs).squeeze(-1)


def _fft(many, default):
    """Transforms: along one dimension or several; without any, all dimensions of an element or the last as many as sizes."""

    def rule(level, func, x, s=None, dim=default, norm=None, **kwargs):
        s, dim = kwargs.get("n", s), kwargs.get("dim", dim)
        if dim is None:
            dim = list(range(-len(s), 0)) if s is not None else list(range(1, x._rank + 1))
            dim = dim if s is None else shifted(dim, x._rank)
        else:
            dim = shifted(dim, x._rank)
        return level.wrap(func(x._value, s, dim, norm))

    return rule


def _shift(level, func, x, dim=None):
    return level.wrap(func(x._value, list(range(1, x._rank + 1)) if dim is None else shifted(dim, x._rank)))


def _roll(level, func, x, shifts, dims=None):
    if x._rank == 0:
        if dims not in (None, (), []):
            raise IndexError(f"Dimension specified as {dims if isinstance(dims, int) else dims[0]} but tensor has no dimensions")
        return level.wrap(x._value.clone())
    if dims is None or dims == () or dims == []:
        return level.wrap(_torch.roll(x._value.flatten(1), shifts, 1).reshape(made_shape(x._value)))
    return level.wrap(_torch.roll(x._value, shifts, shifted(dims, x._rank)))


def _flip(level, func, x, *dims, **kwargs):
    dims = _sizes(dims) if dims else list(kwargs["dims"])
    return level.wrap(_torch.flip(x._value, shifted(dims, x._rank)))


def _norm(level, func, x, p="fro", dim=None, keepdim=False, dtype=None, **kwargs):
    dim = None if dim == () or dim == [] or x._rank == 0 else dim
    if dim is None and p != "nuc":
        made = _torch.norm(x._value.reshape(level.size, _count(x)), 2 if p in ("fro", None) else p, 1, dtype=dtype)
        return level.wrap(made.reshape(level.size, *[1] * x._rank) if keepdim else made)
    moved = [1, 2] if dim is None else shifted(dim, x._rank)
    return level.wrap(func(x._value, "fro" if p is None else p, moved, keepdim, dtype=dtype))


def _linalg_norm(level, func, x, ord=None, dim=None, keepdim=False, *, dtype=None, **kwargs):
    if dim is None and ord is not None and x._rank > 2:
        raise RuntimeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {x._rank}D.")
    count = x._rank if dim is None else 1 if isinstance(dim, int) else len(dim)
    if ord is None or count != 2:
        return _vector_norm(level, _C._linalg.vector_norm, x, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
    return level.wrap(func(x._value, ord, [1, 2] if dim is None else shifted(list(dim), x._rank), keepdim, dtype=dtype))


def _vector_norm(level, func, x, ord=2, dim=None, keepdim=False, *, dtype=None, **kwargs):
    if dim is None or dim == () or dim == [] or x._rank == 0:
        made = func(x._value.reshape(level.size, _count(x)), ord, 1, dtype=dtype)
        return level.wrap(made.reshape(level.size, *[1] * x._rank) if keepdim else made)
    return level.wrap(func(x._value, ord, shifted(dim, x._rank), keepdim, dtype=dtype))


def _count(x):
    """How many numbers an element of the batch has."""
    return math.prod(made_shape(x))


def _pair_along(default):
    """A function of two tensors that broadcast, along one dimension."""

    def rule(level, func, a, b, *args, **kwargs):
        at = 0 if default is not None or args else None
        dim = args[0] if args and at == 0 and isinstance(args[0], int) else kwargs.pop("dim", default)
        most = max(rank(a), rank(b))
        if rank(a) != rank(b) and name_of(func) == "linalg.cross":
            raise RuntimeError(f"linalg.cross: inputs must have the same number of dimensions, got {rank(a)} and {rank(b)}")
        if most == 0:
            return level.loop(func, (a, b, *args), kwargs if dim is None or args else {**kwargs, "dim": dim})
        if dim is None:
            sizes = [max(p) for p in zip(*((1,) * (most - len(made_shape(t))) + made_shape(t) for t in (a, b)))]
            dim = next((k for k, n in enumerate(sizes) if n == 3), 0) if default is None else default
        values = [level.aligned(t, most) if level.has(t) else t.reshape(*[1] * (most + 1 - rank(t)), *made_shape(t)) for t in (a, b)]
        return level.wrap(func(*values, *args[1:], dim=shifted(dim, most), **kwargs))

    return rule


_POINTWISE = (
    "abs acos acosh add addcdiv addcmul angle arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not "
    "bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min complex conj conj_physical copysign cos cosh deg2rad digamma div eq erf erfc erfinv exp "
    "exp2 expm1 fix float_power floor floor_divide fmax fmin fmod frac frexp gcd ge greater greater_equal gt heaviside hypot i0 igamma igammac imag isclose isfinite isinf "
    "isnan isneginf isposinf isreal lcm ldexp le lerp less less_equal lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit "
    "lt masked_fill maximum minimum mul mvlgamma nan_to_num ne neg nextafter not_equal polar polygamma positive pow rad2deg real reciprocal relu remainder resolve_conj "
    "resolve_neg round rsqrt rsub sgn sigmoid sign signbit sin sinc sinh softplus sqrt square sub tan tanh threshold trunc where xlogy rad2deg xlog1py zeta entr erfcx expit "
    "gammaln i0e i1 i1e log_ndtr ndtr ndtri psi multigammaln _zeta _gammainc _gammaincc airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 "
    "scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 radd rmul rtruediv truediv rpow floordiv "
    "rfloordiv mod rmod and or xor invert lshift rshift rand ror rxor rdiv pos "
    "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softshrink softsign tanhshrink exp2 fill view_as_real view_as_complex "
    "tril triu cholesky linalg.cholesky linalg.det linalg.inv det inv logdet slogdet linalg.slogdet linalg.svd linalg.svdvals svd linalg.qr qr linalg.eigh linalg.eigvalsh "
    "linalg.pinv pinverse linalg.matrix_exp matrix_exp linalg.matrix_power matrix_power linalg.matrix_rank linalg.lu linalg.lu_factor linalg.lu_factor_ex geqrf "
    "linalg.ldl_factor linalg.ldl_factor_ex cholesky_inverse linalg.matrix_transpose adjoint linalg.eig linalg.eigvals pixel_shuffle pixel_unshuffle "
    "zeros_like ones_like full_like empty_like "
).split()
_INPLACE = "add sub mul div pow clamp clamp_min clamp_max fill masked_fill zero lerp addcdiv addcmul copysign fmod remainder atan2 hypot".split()


#: Functions of ``torch.linalg`` whose first argument is a matrix.
_MATRICES = (
    "cholesky cholesky_ex cond det eig eigh eigvals eigvalsh householder_product inv inv_ex ldl_factor ldl_factor_ex lstsq lu lu_factor lu_factor_ex lu_solve matrix_exp "
    "matrix_norm matrix_power matrix_rank pinv qr slogdet solve solve_ex solve_triangular svd svdvals"
).split()


def _without_rule(level, func, *args, **kwargs):
    """What a level does with functions that have no rule."""
    inner = getattr(func, "__wrapped__", None)
    if inner is None:
        return level.loop(func, args, kwargs)
    with level:
        return inner(*args, **kwargs)


def _rules():
    rules = {}
    for name in _POINTWISE:
        rules[name] = pointwise
        rules[name + "_"] = pointwise
    for name in _INPLACE:
        rules[name + "_"] = pointwise
    for name in "iadd isub imul itruediv idiv ipow iand ior ixor ifloordiv imod".split():
        rules[name] = pointwise
    for name in "sum mean prod amax amin any all nansum nanmean argmax argmin count_nonzero max min median nanmedian std var std_mean var_mean logsumexp".split():
        rules[name] = by_dim(reduces=True)
    for name in "cumsum cumprod cummax cummin logcumsumexp glu unbind".split():
        rules[name] = by_dim(default=0)
    rules["glu"] = by_dim(default=-1)
    for name in "softmax log_softmax softmin mode".split():
        rules[name] = by_dim(default=-1)
    rules["unbind"] = _ranked(rules["unbind"], 1, 64, "Dimension specified as 0 but tensor has no dimensions", IndexError)
    rules["sort"] = rules["argsort"] = by_dim(default=-1)
    rules["msort"] = lambda level, func, x: level.wrap(_torch.sort(x._value, 1)[0])
    for name in "topk kthvalue".split():
        rules[name] = by_dim(default=-1, at=2)
    rules["diff"] = _diff
    for name in "chunk split tensor_split split_with_sizes unsafe_chunk unsafe_split".split():
        rules[name] = by_dim(default=0, at=2)
    rules["quantile"] = rules["nanquantile"] = _quantile
    rules["unflatten"] = by_dim(at=1)
    unfold = by_dim(at=1, name="dimension")
    rules["unfold"] = lambda level, func, x, *args, **kwargs: unfold(level, func, x, *args, **kwargs) if x._rank else level.loop(func, (x, *args), kwargs)
    rules["normalize"] = by_dim(default=1, at=2)
    rules.update(
        view=_view, reshape=_view, view_as=_view_as, reshape_as=_view_as, expand=_expand, broadcast_to=_expand, expand_as=_expand_as, repeat=_repeat, tile=_repeat,
        permute=_permute, transpose=_two_dims, movedim=_two_dims, squeeze=_squeeze, unsqueeze=_unsqueeze, flatten=_flatten, ravel=_ravel,
        t=_ranked(_transposed, 0, 2, "t() expects a tensor with <= 2 dimensions, but self is {}D"),
        diagonal=_diagonal(0, 1), diag_embed=_diag_embed, diag=_ranked(_diag, 1, 2, "diag(): Supports 1D or 2D tensors. Got {}D"),
        trace=_ranked(_trace, 2, 2, "trace: expected a matrix, but got tensor with dim {}"), cat=_cat, stack=_stack, hstack=_joined(1, 1), vstack=_joined(0, 2),
        dstack=_joined(2, 3), column_stack=_joined(1, "columns"), matmul=_matmul, mm=_exactly(2, 2), mv=_exactly(2, 1), dot=_exactly(1, 1), bmm=_exactly(3, 3),
        linear=_linear, outer=_outer, einsum=_einsum, inner=_inner, dist=_dist, roll=_roll, flip=_flip, norm=_norm, clone=_clone, contiguous=_clone, detach=_clone,
        to=_clone, data=_clone, new_zeros=_new, new_ones=_new, new_empty=_new, new_full=_new, copy_=_copy, cross=_pair_along(None), cosine_similarity=_pair_along(1),
        fill=_fill, fill_=_fill, masked_fill=_masked_fill, masked_fill_=_masked_fill, fftshift=_shift, ifftshift=_shift, detach_=_clone,
    )
    for name in ("transpose", "squeeze", "unsqueeze", "t"):
        rules[name + "_"] = _reshaping(rules[name])
    rules["rmatmul"] = lambda level, func, a, b: _matmul(level, func, b, a)
    for name in ("addmm", "addmv", "addr", "baddbmm", "addbmm"):
        rules[name] = rules[name + "_"] = _plus_product
    for name in "fft ifft rfft irfft hfft ihfft".split():
        rules[name] = _fft(False, -1)
    for name in "fft2 ifft2 rfft2 irfft2 hfft2 ihfft2".split():
        rules[name] = _fft(True, (-2, -1))
    for name in "fftn ifftn rfftn irfftn hfftn ihfftn".split():
        rules[name] = _fft(True, None)
    rules.update({
        "linalg.pinv": _tolerant, "linalg.matrix_rank": _tolerant, "embedding_bag": lambda level, func, *args, **kwargs: level.loop(func, args, kwargs),
        "linalg.diagonal": _diagonal(-2, -1), "linalg.norm": _linalg_norm, "linalg.vector_norm": _vector_norm, "linalg.solve": _linalg_solve, "linalg.matmul": _matmul,
        "linalg.cross": _pair_along(-1), "linalg.vecdot": _pair_along(-1), "linalg.solve_triangular": _linalg_solve, "cholesky_solve": _linalg_solve,
    })
    for name in _MATRICES:
        rules[f"linalg.{name}"] = _ranked(rules.get(f"linalg.{name}", _without_rule), 2, 64, f"linalg.{name}: The input tensor A must have at least 2 dimensions, got {{}}")
    rules.update(_INDICES)
    rules.update(_LAYERS)
    return rules


def _diff(level, func, x, n=1, dim=-1, prepend=None, append=None):
    if not level.has(x):
        x = Batched(level.expanded(x), level)
    ends = [None if t is None else level.value(t) for t in (prepend, append)]
    if x._rank == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    return level.wrap(_torch.diff(x._value, n, shifted(dim, x._rank), *ends))


def _fill(level, func, x, value):
    """Elements become a number, of each element of the batch if that is a batched tensor."""
    if not level.has(value):
        return pointwise(level, func, x, value)
    if rank(value):
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {rank(value)} dimensions.")
    if is_in_place(func) and not level.has(x):
        raise RuntimeError(INPLACE.format(func.__name__))
    filled = level.aligned(value, rank(x)).to(x.dtype).expand(level.size, *made_shape(x))
    if not is_in_place(func):
        return level.wrap(filled.clone())
    x._value.copy_(filled)
    return x


def _masked_fill(level, func, x, mask, value):
    """``masked_fill`` with a number of each element of the batch."""
    if not level.has(value):
        return pointwise(level, func, x, mask, value)
    if rank(value):
        raise RuntimeError(f"masked_fill only supports a 0-dimensional value tensor, but got tensor with {rank(value)} dimension(s).")
    if is_in_place(func) and not level.has(x):
        raise RuntimeError(INPLACE.format(func.__name__))
    with level:
        made = _torch.where(mask, value.to(x.dtype), x)
        return x.copy_(made) if is_in_place(func) else made


def _quantile(level, func, x, q, dim=None, keepdim=False, **kwargs):
    if not level.has(x) or level.mentions(q) or isinstance(q, Tensor) and rank(q):
        return level.loop(func, (x, q, dim, keepdim), kwargs)
    if dim is None:
        made = func(x._value.reshape(level.size, -1), q, 1, **kwargs)
        return level.wrap(made.reshape(level.size, *[1] * x._rank) if keepdim else made)
    if x._rank == 0:
        return level.wrap(func(x._value.unsqueeze(1), q, 1, **kwargs))
    return level.wrap(func(x._value, q, shifted(dim, x._rank), keepdim, **kwargs))


RULES = _rules()
