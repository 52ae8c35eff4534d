"""Derivatives of the ops that ``__torch_dispatch__`` handles.

PyTorch records an op before the class of its arguments sees it, and the backward step calls ops of that class again. So do these rules: each gives the
gradients of an op's arguments by functions of ``torch``, from the arguments alone. A result is never kept: it would keep its own node alive.
"""

from . import _C

Tensor = _C.Tensor


def _torch():
    return _C._torch


def _summed(gradient, like):
    """A gradient of a broadcast argument; None for a number."""
    if not isinstance(like, Tensor):
        return None
    if gradient.shape != like.shape:
        extra = gradient.dim() - like.dim()
        dims = [*range(extra), *(d + extra for d, n in enumerate(like.shape) if n == 1 and gradient.shape[d + extra] != 1)]
        gradient = gradient.sum(dims, True) if dims else gradient
        gradient = gradient.reshape(like.shape) if extra else gradient
    return gradient if gradient.dtype == like.dtype else gradient.to(like.dtype)


def _each(derivative):
    """A function of one tensor, element by element: ``derivative(g, x, *rest)``."""
    return lambda g, x, *rest, **options: (derivative(g, x, *rest, **options),)


def _of_two(first, second):
    """A function of two operands that are broadcast."""

    def rule(g, a, b, *rest, **options):
        by_a = _summed(first(g, a, b, **options), a) if isinstance(a, Tensor) else None
        by_b = _summed(second(g, a, b, **options), b) if isinstance(b, Tensor) else None
        return by_a, by_b

    return rule


def _no_rounding(function):
    def checked(g, a, b, rounding_mode=None):
        if rounding_mode is not None:
            return _torch().zeros_like(g)
        return function(g, a, b)

    return checked


def _reshaped(g, x, *rest, **options):
    return (g.reshape(x.shape),)


def _dims(x, dim):
    dims = range(x.dim()) if dim is None or dim == [] or dim == () else [dim] if isinstance(dim, int) else dim
    return sorted(d % max(x.dim(), 1) for d in dims)


def _spread(g, x, dim, keepdim):
    """The gradient of a reduction in the size of its argument."""
    if not keepdim and x.dim():
        for d in _dims(x, dim):
            g = g.unsqueeze(d)
    return g.expand(x.shape)


def _sum(g, x, dim=None, keepdim=False, *, dtype=None):
    g = _spread(g, x, dim, keepdim)
    return (g if g.dtype == x.dtype else g.to(x.dtype),)


def _mean(g, x, dim=None, keepdim=False, *, dtype=None):
    count = 1
    for d in _dims(x, dim):
        count *= x.shape[d] if x.dim() else 1
    return (_sum(g, x, dim, keepdim)[0] / count,)


def _extreme(name):
    def rule(g, x, dim=None, keepdim=False):
        if dim is None:
            hit = (x == getattr(x, name)()).to(x.dtype)
            return (g * hit / hit.sum(),)
        index = getattr(x, name)(dim, True)[1]
        g = g if keepdim else g.unsqueeze(dim)
        return (_torch().zeros_like(x).scatter(dim, index, g),)

    return rule


def _whole_extreme(name):
    def rule(g, x, dim=(), keepdim=False):
        best = getattr(x, name)(_dims(x, dim), True)
        hit = (x == best).to(x.dtype)
        return (_spread(g, x, dim, keepdim) * hit / hit.sum(_dims(x, dim), True),)

    return rule


def _softmax(g, x, dim, *rest):
    y = _torch().softmax(x, dim)
    return (y * (g - (g * y).sum(dim, True)),)


def _log_softmax(g, x, dim, *rest):
    return (g - _torch().softmax(x, dim) * g.sum(dim, True),)


def _gelu(g, x, *, approximate="none"):
    torch = _torch()
    if approximate == "tanh":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        t = torch.tanh(inner)
        return 0.5 * g * (1 + t + x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x))
    return g * (0.5 * (1 + torch.erf(x * 0.7071067811865476)) + x * torch.exp(-0.5 * x * x) * 0.3989422804014327)


def _pow(g, a, b):
    torch = _torch()
    by_a = by_b = None
    if isinstance(a, Tensor):
        by_a = torch.zeros_like(a) if not isinstance(b, Tensor) and b == 0 else _summed(g * b * a ** (b - 1), a)
    if isinstance(b, Tensor):
        base = torch.log(a) if isinstance(a, Tensor) else _C.tensor(float(a)).log().item()
        by_b = _summed(g * a**b * base, b)
    return by_a, by_b


def _mm(g, a, b):
    return g.mm(b.t()), a.t().mm(g)


def _addmm(g, input, a, b, *, beta=1, alpha=1):
    scaled = g if alpha == 1 else g * alpha
    return _summed(g if beta == 1 else g * beta, input), scaled.mm(b.t()), a.t().mm(scaled)


def _bmm(g, a, b):
    return g.bmm(b.transpose(1, 2)), a.transpose(1, 2).bmm(g)


def _matmul(g, a, b):
    left = a if a.dim() > 1 else a.unsqueeze(0)
    right = b if b.dim() > 1 else b.unsqueeze(1)
    g = g if a.dim() > 1 else g.unsqueeze(-2)
    g = g if b.dim() > 1 else g.unsqueeze(-1)
    by_a, by_b = _torch().matmul(g, right.transpose(-1, -2)), _torch().matmul(left.transpose(-1, -2), g)
    by_a = by_a if a.dim() > 1 else by_a.sum([*range(by_a.dim() - 2)]).squeeze(0) if by_a.dim() > 2 else by_a.squeeze(0)
    by_b = by_b if b.dim() > 1 else by_b.sum([*range(by_b.dim() - 2)]).squeeze(1) if by_b.dim() > 2 else by_b.squeeze(1)
    return _summed(by_a, a), _summed(by_b, b)


def _select(g, x, dim, index):
    return (_torch().select_scatter(_torch().zeros_like(x), g, dim, index),)


def _slice(g, x, dim=0, start=None, end=None, step=1):
    size = x.shape[dim]
    start = 0 if start is None else max(start + size, 0) if start < 0 else min(start, size)
    end = size if end is None else max(end + size, 0) if end < 0 else min(end, size)
    return (_torch().slice_scatter(_torch().zeros_like(x), g, dim, start, max(start, end), step),)


def _index(g, x, indices):
    from ._dispatch import _by_class
    from ._ops import ops

    places = tuple(slice(None) if i is None else i for i in indices)
    return (_by_class(ops.aten.index_put.default, (_torch().zeros_like(x), places, g, True), {}),)


def _slice_scatter(g, x, source, dim=0, start=None, end=None, step=1):
    rest = _torch().slice_scatter(g, _torch().zeros_like(source), dim, start, end, step)
    places = [slice(None)] * x.dim()
    places[dim] = slice(start, end, step)
    return rest, g[tuple(places)]


def _select_scatter(g, x, source, dim, index):
    return _torch().select_scatter(g, _torch().zeros_like(source), dim, index), g.select(dim, index)


def _scatter(g, x, dim, index, source):
    return g.scatter(dim, index, 0.0), None, None, g.gather(dim, index) if isinstance(source, Tensor) else None


def _index_put(g, x, indices, values, accumulate=False):
    from ._dispatch import _by_class
    from ._ops import ops

    rest = g if accumulate else _by_class(ops.aten.index_put.default, (g, indices, _torch().zeros_like(values)), {})
    return rest, None, _summed(g[tuple(indices)], values)


def _repeat(g, x, sizes):
    lead = len(sizes) - x.dim()
    shape = [n for times, size in zip(sizes, [1] * lead + list(x.shape)) for n in (times, size)]
    return (g.reshape(shape).sum([2 * d for d in range(len(sizes))]).reshape(x.shape),)


def _cat(g, tensors, dim=0):
    found, at = [], 0
    for t in tensors:
        size = t.shape[dim]
        found.append(g.narrow(dim, at, size))
        at += size
    return (found,)


def _stack(g, tensors, dim=0):
    return ([g.select(dim, i) for i in range(len(tensors))],)


def _split(gradients, x, sizes, dim=0):
    sizes = sizes if not isinstance(sizes, int) else [min(sizes, x.shape[dim] - at) for at in range(0, x.shape[dim], sizes)]
    parts = []
    for g, size in zip(gradients, sizes):
        shape = list(x.shape)
        shape[dim] = size
        parts.append(_torch().zeros(shape, dtype=x.dtype, device=x.device) if g is None else g)
    return (_torch().cat(parts, dim),)


def _unbind(gradients, x, dim=0):
    shape = list(x.shape)
    del shape[dim]
    parts = [_torch().zeros(shape, dtype=x.dtype, device=x.device) if g is None else g for g in gradients]
    return (_torch().stack(parts, dim),)


def _embedding(g, weight, index, *rest, **options):
    flat = g.reshape(-1, weight.shape[-1])
    return _torch().zeros_like(weight).index_add(0, index.reshape(-1), flat), None


def _permute(g, x, dims):
    back = [0] * len(dims)
    for at, d in enumerate(dims):
        back[d] = at
    return (g.permute(back),)


def _where(g, condition, a, b):
    torch = _torch()
    zero = torch.zeros_like(g)
    return None, _summed(torch.where(condition, g, zero), a), _summed(torch.where(condition, zero, g), b)


def _masked_fill(g, x, mask, value):
    by_value = (g * mask).sum() if isinstance(value, Tensor) else None
    return _summed(g.masked_fill(mask, 0), x), None, by_value


def _clamp(g, x, min=None, max=None):
    inside = _torch().ones_like(x, dtype=_C.bool)
    inside = inside if min is None else inside & (x >= min)
    inside = inside if max is None else inside & (x <= max)
    return (g * inside,)


def _loss(derivative):
    def rule(g, a, b, *rest, reduction="mean", **options):
        d = derivative(a, b)
        d = d / a.numel() if reduction in ("mean", 1) else d
        return d * g, -d * g

    return rule


#: Gradients of the arguments by an op's name, from those of the results. Ops with several results get a list.
RULES = {
    "add": _of_two(lambda g, a, b, alpha=1: g, lambda g, a, b, alpha=1: g if alpha == 1 else g * alpha),
    "sub": _of_two(lambda g, a, b, alpha=1: g, lambda g, a, b, alpha=1: -g if alpha == 1 else g * -alpha),
    "rsub": _of_two(lambda g, a, b, alpha=1: -g if alpha == 1 else g * -alpha, lambda g, a, b, alpha=1: g),
    "mul": _of_two(lambda g, a, b: g * b, lambda g, a, b: g * a),
    "div": _of_two(_no_rounding(lambda g, a, b: g / b), _no_rounding(lambda g, a, b: -g * a / (b * b))),
    "maximum": _of_two(lambda g, a, b: g * (a >= b), lambda g, a, b: g * (a < b)),
    "minimum": _of_two(lambda g, a, b: g * (a <= b), lambda g, a, b: g * (a > b)),
    "pow": _pow,
    "neg": _each(lambda g, x: -g), "abs": _each(lambda g, x: g * x.sign()), "exp": _each(lambda g, x: g * x.exp()), "log": _each(lambda g, x: g / x),
    "log1p": _each(lambda g, x: g / (x + 1)), "expm1": _each(lambda g, x: g * x.exp()), "sin": _each(lambda g, x: g * x.cos()),
    "cos": _each(lambda g, x: -g * x.sin()), "tan": _each(lambda g, x: g * (1 + x.tan() ** 2)), "tanh": _each(lambda g, x: g * (1 - x.tanh() ** 2)),
    "sigmoid": _each(lambda g, x: g * x.sigmoid() * (1 - x.sigmoid())), "sqrt": _each(lambda g, x: g / (2 * x.sqrt())),
    "rsqrt": _each(lambda g, x: -0.5 * g * x.rsqrt() / x), "square": _each(lambda g, x: 2 * g * x), "reciprocal": _each(lambda g, x: -g / (x * x)),
    "relu": _each(lambda g, x: g * (x > 0)), "gelu": _each(_gelu), "silu": _each(lambda g, x: g * x.sigmoid() * (1 + x * (1 - x.sigmoid()))),
    "erf": _each(lambda g, x: g * 1.1283791670955126 * (-x * x).exp()), "sinh": _each(lambda g, x: g * x.cosh()), "cosh": _each(lambda g, x: g * x.sinh()),
    "leaky_relu": _each(lambda g, x, slope=0.01: _torch().where(x > 0, g, g * slope)), "clamp": _clamp,
    "clone": _each(lambda g, x, memory_format=None: g), "_to_copy": _each(lambda g, x, **options: g.to(device=x.device, dtype=x.dtype)),
    "alias": _each(lambda g, x: g), "view": _reshaped, "_unsafe_view": _reshaped, "reshape": _reshaped, "squeeze": _reshaped, "unsqueeze": _reshaped,
    "expand": _each(lambda g, x, size, **options: _summed(g, x)), "t": _each(lambda g, x: g.t()),
    "transpose": _each(lambda g, x, a, b: g.transpose(a, b)), "permute": _permute, "select": _select, "slice": _slice, "index": _index,
    "slice_scatter": _slice_scatter, "select_scatter": _select_scatter, "scatter": _scatter, "index_put": _index_put, "repeat": _repeat,
    "scatter_add": lambda g, x, dim, index, source: (g, None, None, g.gather(dim, index)),
    "index_add": lambda g, x, dim, index, source, alpha=1: (g, None, None, g.index_select(dim, index) * alpha),
    "cat": _cat, "stack": _stack, "split": _split, "split_with_sizes": _split, "unbind": _unbind,
    "gather": lambda g, x, dim, index, **options: (_torch().zeros_like(x).scatter_add(dim, index, g), None, None),
    "index_select": lambda g, x, dim, index: (_torch().zeros_like(x).index_add(dim, index, g), None, None),
    "sum": _sum, "mean": _mean, "max": _extreme("max"), "min": _extreme("min"), "amax": _whole_extreme("amax"), "amin": _whole_extreme("amin"),
    "cumsum": _each(lambda g, x, dim, **options: g.flip(dim).cumsum(dim).flip(dim)), "flip": _each(lambda g, x, dims: g.flip(dims)),
    "mm": _mm, "addmm": _addmm, "bmm": _bmm, "matmul": _matmul, "mv": lambda g, a, b: (_torch().outer(g, b), a.t().mv(g)),
    "outer": lambda g, a, b: (g.mv(b), g.t().mv(a)), "dot": lambda g, a, b: (g * b, g * a), "_softmax": _softmax, "_log_softmax": _log_softmax,
    "embedding": _embedding, "where": _where, "masked_fill": _masked_fill,
    "mse_loss": _loss(lambda a, b: 2 * (a - b)), "l1_loss": _loss(lambda a, b: (a - b).sign()),
}
_MANY = frozenset("split split_with_sizes unbind".split())


def tensors_among(args, kwargs):
    """The tensors among arguments, each with its place: a number or a keyword, and a number within a list."""
    found = []
    for place, value in [*enumerate(args), *kwargs.items()]:
        if isinstance(value, Tensor):
            found.append((place, None, value))
        elif type(value) in (list, tuple):
            found.extend((place, at, item) for at, item in enumerate(value) if isinstance(item, Tensor))
    return found


def record(op, args, kwargs, run):
    """The result of ``run()``, recorded as an op of its arguments."""
    name = op.overloadpacket.__name__
    rule, kind = RULES.get(name), type(args[0]).__name__ if args else name
    if rule is None:
        raise NotImplementedError(
            f"{kind}: autograd has no rule for the op {op} of classes with __torch_dispatch__; handle the function in __torch_function__ with an "
            "autograd.Function, or call it under no_grad"
        )
    before = _C._set_grad_enabled(False)
    try:
        result = run()
    finally:
        _C._set_grad_enabled(before)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    places = tensors_among(args, kwargs)
    if any(r is t for r in results for _, _, t in places) or not all(isinstance(r, Tensor) for r in results):
        return result

    def backward(_, gradients):
        found = rule(gradients if name in _MANY else gradients[0], *args, **kwargs)
        found = dict(enumerate(found))

        def of(place, at):
            gradient = found.get(place)
            return gradient if at is None or gradient is None else gradient[at]

        return [of(place, at) for place, at, _ in places]

    title = "".join(part.capitalize() for part in name.split("_") if part)
    made, _ = _C._record_function(title, [t for _, _, t in places], results, [], [], [], True, backward, None)
    return type(result)(made) if isinstance(result, (tuple, list)) else made[0]
