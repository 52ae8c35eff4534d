"""Backward passes as modes of ``__torch_dispatch__`` see them.

A mode sees an op below autograd: the op is recorded here with PyTorch's formula of its derivative, which calls functions of ``torch`` when the backward pass
reaches it, so that the modes of that moment see them. Views keep their nodes, with a hook that computes. ``observed`` shows what the engine does between
nodes: sums of gradients and their way into leaves.
"""

from . import _C
from ._dispatch_grad import tensors_among
from ._ops import ops

Tensor = _C.Tensor
_aten = ops.aten


class _Kept:
    """What a formula may ask of a tensor whose values the node does not keep."""

    __slots__ = ("shape", "dtype", "device", "_strides")

    def __init__(self, tensor):
        self.shape, self.dtype, self.device, self._strides = tensor.shape, tensor.dtype, tensor.device, tensor.stride()

    def dim(self):
        return len(self.shape)

    def numel(self):
        return self.shape.numel()

    def stride(self):
        return self._strides


_TENSORS = (Tensor, _Kept)


def _times(g, number):
    return g if number == 1 else _aten.mul.Scalar(g, number)


def _summed(g, like):
    """A gradient in the size and dtype of its argument."""
    shape = like.shape
    if g.shape != shape:
        extra = g.dim() - len(shape)
        dims = [*range(extra), *(d + extra for d, n in enumerate(shape) if n == 1 and g.shape[d + extra] != 1)]
        g = _aten.sum.dim_IntList(g, dims, True) if dims else g
        g = _aten.view.default(g, list(shape)) if extra else g
    return g if g.dtype == like.dtype else _aten._to_copy.default(g, dtype=like.dtype)


def _each(derivative):
    """A function of one tensor: ``derivative(g, x, result, *rest)``."""
    return lambda needs, g, r, x, *rest, **options: (derivative(g, x, r, *rest, **options),)


def _of_two(first, second):
    return lambda needs, g, r, a, b, *rest, **options: (
        first(g, a, b, *rest, **options) if 0 in needs else None, second(g, a, b, *rest, **options) if 1 in needs else None
    )


def _by_mode(name):
    """A derivative that is one op, of the gradient and the arguments."""
    return lambda needs, g, r, *args, **options: (getattr(_aten, name).default(g, *args, **options),)


def _numbers(value, count):
    return [value] * count if isinstance(value, int) else list(value)


def _dims(rank, dim):
    dims = range(rank) if dim is None or dim == [] or dim == () else [dim] if isinstance(dim, int) else dim
    return sorted(d % max(rank, 1) for d in dims)


def _spread(g, x, dim, keepdim):
    """The gradient of a reduction in the size of its argument."""
    if not keepdim and x.dim() and dim is not None and dim != []:
        for d in _dims(x.dim(), dim):
            g = g.unsqueeze(d)
    return g.expand(x.shape)


def _sum(needs, g, r, x, dim=None, keepdim=False, *, dtype=None):
    return (_spread(g, x, dim, keepdim),)


def _mean(needs, g, r, x, dim=None, keepdim=False, *, dtype=None):
    count = 1
    for d in _dims(x.dim(), dim):
        count *= x.shape[d] if x.dim() else 1
    return (_aten.div.Scalar(_spread(g, x, dim, keepdim), count),)


def _by_columns(like):
    strides = like.stride()
    return strides[0] == 1 and strides[1] == like.shape[0]


def _left(g, b, a, alpha=1):
    return _times(b.mm(g.t()).t() if _by_columns(a) else g.mm(b.t()), alpha)


def _right(g, a, b, alpha=1):
    return _times(g.t().mm(a).t() if _by_columns(b) else a.t().mm(g), alpha)


def _mm(needs, g, r, a, b):
    return _left(g, b, a) if 0 in needs else None, _right(g, a, b) if 1 in needs else None


def _addmm(needs, g, r, input, a, b, *, beta=1, alpha=1):
    return _times(g, beta) if 0 in needs else None, _left(g, b, a, alpha) if 1 in needs else None, _right(g, a, b, alpha) if 2 in needs else None


def _bmm(needs, g, r, a, b):
    return g.bmm(b.transpose(1, 2)) if 0 in needs else None, a.transpose(1, 2).bmm(g) if 1 in needs else None


def _baddbmm(needs, g, r, input, a, b, *, beta=1, alpha=1):
    by_a = _times(g.bmm(b.transpose(1, 2)), alpha) if 1 in needs else None
    return _times(g, beta) if 0 in needs else None, by_a, _times(a.transpose(1, 2).bmm(g), alpha) if 2 in needs else None


def _pow(needs, g, r, a, b):
    if not isinstance(a, _TENSORS):
        return None, _aten.mul.Tensor(g, _aten.mul.Scalar(r, _C.tensor(float(a)).log().item()))
    if not isinstance(b, _TENSORS):
        return (_aten.zeros_like.default(a) if b == 0 else g * _aten.mul.Scalar(a.pow(b - 1), b),)
    zero = _aten.scalar_tensor.default(0.0, dtype=g.dtype, device=g.device)
    by_a = _aten.where.self(_aten.eq.Scalar(b, 0.0), zero, g * (b * a.pow(_aten.sub.Scalar(b, 1)))) if 0 in needs else None
    if 1 not in needs:
        return by_a, None
    zero = _aten.scalar_tensor.default(0.0, dtype=g.dtype, device=g.device)
    nothing = _aten.logical_and.default(_aten.eq.Scalar(a, 0), _aten.ge.Scalar(b, 0))
    return by_a, _aten.where.self(nothing, zero, g * (r * a.log()))


def _clamp(g, x, r, min=None, max=None):
    if min is None and max is None:
        return g
    zero = _aten.scalar_tensor.default(0.0, dtype=g.dtype, device=g.device)
    inside = None if min is None else _aten.gt.Scalar(x, min)
    if max is not None:
        below = _aten.lt.Scalar(x, max)
        inside = below if inside is None else _aten.logical_and_.default(inside, below)
    return _aten.where.self(inside, g, zero)


def _where(needs, g, r, condition, a, b):
    zero = lambda: _aten.scalar_tensor.default(0, dtype=g.dtype, device=g.device)  # noqa: E731
    return None, _aten.where.self(condition, g, zero()) if 1 in needs else None, _aten.where.self(condition, zero(), g) if 2 in needs else None


def _extreme(needs, g, r, x, dim=None, keepdim=False):
    if dim is None:
        nan = _aten.logical_and.default(x.isnan(), r.isnan())
        mask = _aten.logical_or_.default(_aten.eq.Tensor(x, r), nan)
        return (mask * (g / mask.sum()),)
    return _selected(g[0], x, dim, r[1], keepdim)


def _selected(g, x, dim, indices, keepdim):
    """The gradient of elements that a reduction chose."""
    if not keepdim and x.dim():
        g, indices = g.unsqueeze(dim), indices.unsqueeze(dim)
    return (_aten.scatter.src(_aten.new_zeros.default(g, list(x.shape)), dim, indices, g),)


def _reduced_extreme(needs, g, r, x, dim=(), keepdim=False):
    dims = _dims(x.dim(), dim)
    if not keepdim:
        shape = [1 if d in dims else n for d, n in enumerate(x.shape)]
        g, r = _aten.view.default(g, shape), _aten.view.default(r, shape)
    mask = _aten.eq.Tensor(r, x)
    return (g / _aten.sum.dim_IntList(mask, dims, True) * mask,)


def _variance(g, x, dim, correction, keepdim):
    correction = 1 if correction is None else correction
    if dim is None or not x.dim():
        return _aten.mul.Scalar(g, 2.0 / (x.numel() - correction)) * (x - x.mean())
    if not keepdim and x.dim() > 1:
        for d in _dims(x.dim(), dim):
            g = g.unsqueeze(d)
    count = 1
    for d in _dims(x.dim(), dim):
        count *= x.shape[d]
    return _aten.mul.Scalar(g, 2.0 / (count - correction)) * (x - _aten.mean.dim(x, list(dim), True))


def _var(needs, g, r, x, dim=None, *, correction=None, keepdim=False):
    return (_variance(g, x, dim, correction, keepdim),)


def _std(needs, g, r, x, dim=None, *, correction=None, keepdim=False):
    g = _aten.masked_fill_.Scalar(g / _aten.mul.Scalar(r, 2), _aten.eq.Scalar(r, 0), 0)
    return (_variance(g, x, dim, correction, keepdim),)


def _logsumexp(needs, g, r, x, dim, keepdim=False):
    if not keepdim and x.dim():
        for d in _dims(x.dim(), dim):
            g, r = g.unsqueeze(d), r.unsqueeze(d)
    return (g * (x - r).exp(),)


def _cat(needs, g, r, tensors, dim=0):
    found, at = [], 0
    for t in tensors:
        found.append(g.narrow(dim, at, t.shape[dim]))
        at += t.shape[dim]
    return (found,)


def _stack(needs, g, r, tensors, dim=0):
    return ([g.select(dim, at) for at in range(len(tensors))],)


def _parts(gradients, x, sizes, dim):
    made = []
    for g, size in zip(gradients, sizes):
        shape = list(x.shape)
        shape[dim] = size
        made.append(_C._torch.zeros(shape, dtype=x.dtype, device=x.device) if g is None else g)
    return (_C._torch.cat(made, dim),)


def _split(needs, gradients, r, x, sizes, dim=0):
    if isinstance(sizes, int):
        sizes = [min(sizes, x.shape[dim] - at) for at in range(0, x.shape[dim], sizes)]
    return _parts(gradients, x, sizes, dim)


def _unbind(needs, gradients, r, x, dim=0):
    shape = list(x.shape)
    del shape[dim]
    return (_C._torch.stack([_C._torch.zeros(shape, dtype=x.dtype, device=x.device) if g is None else g for g in gradients], dim),)


def _index(needs, g, r, x, indices):
    zeros = _aten.new_zeros.default(g, list(x.shape))
    return (_aten.index_put.default(zeros, indices, g, True),)


def _gather(needs, g, r, x, dim, index, *, sparse_grad=False):
    return (_aten.new_zeros.default(g, list(x.shape)).scatter_add(dim, index, g),)


def _index_select(needs, g, r, x, dim, index):
    return (_aten.new_zeros.default(g, list(x.shape)).index_add(dim, index, g),)


def _repeat(needs, g, r, x, repeats):
    lead = len(repeats) - x.dim()
    for _ in range(lead):
        g = g.sum(0)
    sizes, dims = [], []
    for times, size in zip(repeats[lead:], x.shape):
        if times != 1:
            dims.append(len(sizes))
            sizes.append(times)
        sizes.append(size)
    return (g.reshape(sizes).sum(dims) if dims else g,)


def _cumsum(g, x, r, dim, *, dtype=None):
    return g if g.numel() <= 1 or g.shape[dim] == 1 else g.flip(dim).cumsum(dim).flip(dim)


def _convolution(needs, g, r, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    sizes = None if bias is None else list(bias.shape)
    wanted = [0 in needs, 1 in needs, 2 in needs]
    return _aten.convolution_backward.default(g, input, weight, sizes, stride, padding, dilation, transposed, output_padding, groups, wanted)


def _layer_norm(needs, g, r, input, shape, weight=None, bias=None, eps=1e-05):
    by_input, by_weight, by_bias = _aten.native_layer_norm_backward.default(g[0], input, shape, r[1], r[2], weight, bias, [n in needs for n in (0, 2, 3)])
    return by_input, None, by_weight, by_bias


def _group_norm(needs, g, r, input, weight, bias, N, C, HxW, group, eps):
    return _aten.native_group_norm_backward.default(g[0], input, r[1], r[2], weight, N, C, HxW, group, [n in needs for n in (0, 1, 2)])


def _batch_norm(needs, g, r, input, weight, bias, mean, variance, training, momentum, eps):
    return _aten.native_batch_norm_backward.default(g[0], input, weight, mean, variance, r[1], r[2], training, eps, [n in needs for n in (0, 1, 2)])


def _embedding(needs, g, r, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return (_aten.embedding_dense_backward.default(g, indices, weight.shape[0], padding_idx, scale_grad_by_freq),)


def _softmax(name):
    return lambda needs, g, r, x, dim, *rest: (getattr(_aten, name).default(g, r, dim, x.dtype),)


def _nll(name):
    def rule(needs, g, r, input, target, weight, reduction, ignore_index):
        return (getattr(_aten, name).default(g[0], input, target, weight, reduction, ignore_index, r[1]),)

    return rule


def _mse(needs, g, r, input, target, reduction=1):
    run = _aten.mse_loss_backward.default
    return run(g, input, target, reduction) if 0 in needs else None, run(g, target, input, reduction) if 1 in needs else None


def _dropout(needs, g, r, input, p, train):
    return (_aten.native_dropout_backward.default(g[0], r[1], 1.0 if not train else 0.0 if p == 1 else 1.0 / (1.0 - p)),)


def _flash_attention(needs, g, r, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    run = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    return run(g[0], query, key, value, r[0], r[1], dropout_p, is_causal, attn_mask=attn_mask, scale=scale)


def _max_pool(dims):
    def rule(needs, g, r, input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        more = [_numbers(v, dims) for v in (kernel_size, stride or kernel_size, padding, dilation)]
        return (getattr(_aten, f"max_pool{dims}d_with_indices_backward").default(g[0], input, *more, ceil_mode, r[1]),)

    return rule


def _average_pool(needs, g, r, input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    places = [_numbers(v, 2) for v in (kernel_size, kernel_size if stride is None else stride, padding)]
    return (_aten.avg_pool2d_backward.default(g, input, *places, ceil_mode, count_include_pad, divisor_override),)


def _leaky(needs, g, r, x, slope=0.01):
    return (_aten.leaky_relu_backward.default(g, x, slope, False),)


#: By an op's name: the gradients of its arguments, and which arguments the node keeps: places, each with the argument
#: whose gradient needs it (``None``: any). ``"r"`` is the result.
RULES = {
    "add": (_of_two(lambda g, a, b, alpha=1: g, lambda g, a, b, alpha=1: _times(g, alpha)), {}),
    "sub": (_of_two(lambda g, a, b, alpha=1: g, lambda g, a, b, alpha=1: _times(g.neg(), alpha)), {}),
    "rsub": (_each(lambda g, x, r, other, alpha=1: _times(g.neg(), alpha)), {}),
    "mul": (_of_two(lambda g, a, b: g * b, lambda g, a, b: g * a), {0: 1, 1: 0}),
    "div": (_of_two(lambda g, a, b: g / b, lambda g, a, b: g.neg() * ((a / b) / b)), {0: 1, 1: None}),
    "addcmul": (lambda needs, g, r, x, a, b, *, value=1: (
        g, g * _aten.mul.Scalar(b, value) if 1 in needs else None, g * _aten.mul.Scalar(a, value) if 2 in needs else None), {1: 2, 2: 1}),
    "pow": (_pow, {0: None, 1: None, "r": 1}), "neg": (_each(lambda g, x, r: g.neg()), {}), "abs": (_each(lambda g, x, r: g * x.sgn()), {0: None}),
    "exp": (_each(lambda g, x, r: g * r), {"r": None}), "log": (_each(lambda g, x, r: g / x), {0: None}),
    "sqrt": (_each(lambda g, x, r: g / _aten.mul.Scalar(r, 2)), {"r": None}),
    "rsqrt": (_each(lambda g, x, r: _aten.mul.Scalar(g, -0.5) * r.pow(3)), {"r": None}),
    "sin": (_each(lambda g, x, r: g * x.cos()), {0: None}), "cos": (_each(lambda g, x, r: g * x.sin().neg()), {0: None}),
    "tan": (_each(lambda g, x, r: g * _aten.add.Scalar(r.pow(2), 1)), {"r": None}),
    "atan": (_each(lambda g, x, r: g / _aten.add.Scalar(x * x, 1)), {0: None}),
    "reciprocal": (_each(lambda g, x, r: g.neg() * (r * r)), {"r": None}),
    "log1p": (_each(lambda g, x, r: g / _aten.add.Scalar(x, 1)), {0: None}), "expm1": (_each(lambda g, x, r: g * _aten.add.Scalar(r, 1)), {"r": None}),
    "erf": (_each(lambda g, x, r: _aten.mul.Scalar(x.pow(2).neg().exp(), 1.1283791670955126) * g), {0: None}),
    "tanh": (lambda needs, g, r, x: (_aten.tanh_backward.default(g, r),), {"r": None}),
    "sigmoid": (lambda needs, g, r, x: (_aten.sigmoid_backward.default(g, r),), {"r": None}),
    "relu": (lambda needs, g, r, x: (_aten.threshold_backward.default(g, r, 0),), {"r": None}),
    **{name: (_by_mode(f"{name}_backward"), {0: None}) for name in ("gelu", "silu", "mish", "hardswish", "hardsigmoid", "hardtanh", "softplus")},
    "leaky_relu": (_leaky, {0: None}), "clamp": (_each(_clamp), {0: None}), "where": (_where, {0: None}),
    "masked_fill": (lambda needs, g, r, x, mask, value: (_aten.masked_fill.Scalar(g, mask, 0) if 0 in needs else None, None,
                    g.masked_select(mask).sum() if 2 in needs else None), {1: None}),
    "clone": (_each(lambda g, x, r, memory_format=None: g), {}),
    "_to_copy": (_each(lambda g, x, r, **options: g if g.dtype == x.dtype and g.device == x.device else _aten._to_copy.default(g, dtype=x.dtype, device=x.device)), {}),
    "_unsafe_view": (_each(lambda g, x, r, size: g.view(x.shape)), {}), "repeat": (_repeat, {}), "cumsum": (_each(_cumsum), {}),
    "flip": (_each(lambda g, x, r, dims: g.flip(dims)), {}), "tril": (_each(lambda g, x, r, k=0: g.tril(k)), {}), "triu": (_each(lambda g, x, r, k=0: g.triu(k)), {}),
    "sum": (_sum, {}), "mean": (_mean, {}), "max": (_extreme, {0: None, "r": None}), "min": (_extreme, {0: None, "r": None}),
    "amax": (_reduced_extreme, {0: None, "r": None}), "amin": (_reduced_extreme, {0: None, "r": None}),
    "var": (_var, {0: None}), "std": (_std, {0: None, "r": None}), "logsumexp": (_logsumexp, {0: None, "r": None}),
    "mv": (lambda needs, g, r, a, b: (_aten.view.default(g, [g.shape[0], 1]) * b if 0 in needs else None, a.t().mv(g) if 1 in needs else None), {0: 1, 1: 0}),
    "mm": (_mm, {0: 1, 1: 0}), "addmm": (_addmm, {1: 2, 2: 1}), "bmm": (_bmm, {0: 1, 1: 0}), "baddbmm": (_baddbmm, {1: 2, 2: 1}),
    "dot": (_of_two(lambda g, a, b: g * b, lambda g, a, b: g * a), {0: 1, 1: 0}),
    "cat": (_cat, {}), "stack": (_stack, {}), "split": (_split, {}), "split_with_sizes": (_split, {}), "unbind": (_unbind, {}),
    "index": (_index, {1: None}), "gather": (_gather, {2: None}), "index_select": (_index_select, {2: None}),
    "convolution": (_convolution, {0: None, 1: None}), "native_layer_norm": (_layer_norm, {0: None, 2: None, 3: None, "r": None}),
    "native_group_norm": (_group_norm, {0: None, 1: None, "r": None}), "native_batch_norm": (_batch_norm, {0: None, 1: None, 3: None, 4: None, "r": None}),
    "embedding": (_embedding, {1: None}), "native_dropout": (_dropout, {"r": None}), "mse_loss": (_mse, {0: None, 1: None}),
    "_softmax": (_softmax("_softmax_backward_data"), {"r": None}), "_log_softmax": (_softmax("_log_softmax_backward_data"), {"r": None}),
    "nll_loss_forward": (_nll("nll_loss_backward"), {0: None, 1: None, 2: None, "r": None}),
    "nll_loss2d_forward": (_nll("nll_loss2d_backward"), {0: None, 1: None, 2: None, "r": None}),
    "_scaled_dot_product_flash_attention_for_cpu": (_flash_attention, {0: None, 1: None, 2: None, "attn_mask": None, "r": None}),
    **{f"max_pool{d}d_with_indices": (_max_pool(d), {0: None, "r": None}) for d in (2, 3)}, "avg_pool2d": (_average_pool, {0: None}),
    "_adaptive_avg_pool2d": (lambda needs, g, r, x, size: (_aten._adaptive_avg_pool2d_backward.default(g, x),), {0: None}),
    "constant_pad_nd": (_each(lambda g, x, r, pad, value=0: _aten.constant_pad_nd.default(g, [-n for n in pad], 0)), {}),
}
#: Ops whose rules take the gradients and results of all outputs as lists.
_MANY = frozenset(
    "split split_with_sizes unbind native_layer_norm native_group_norm native_batch_norm native_dropout nll_loss_forward nll_loss2d_forward max min "
    "_scaled_dot_product_flash_attention_for_cpu max_pool2d_with_indices max_pool3d_with_indices".split()
)


#: Which results of those the node keeps: the others may change.
_NUMBERS = {
    "native_dropout": (1,), "nll_loss_forward": (1,), "nll_loss2d_forward": (1,), "max": (1,), "min": (1,), "max_pool2d_with_indices": (1,),
    "max_pool3d_with_indices": (1,), "_scaled_dot_product_flash_attention_for_cpu": (0, 1),
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "native_batch_norm"), (1, 2)),
}
#: Which of them are differentiable: as they are detached, modes see it.
_DETACHED = {"native_group_norm": (1, 2), "_scaled_dot_product_flash_attention_for_cpu": (0,)}
#: Ops with a form that changes its argument, whose old value the formula does not need.
_IN_PLACE = frozenset("add sub mul div relu sigmoid tanh exp sqrt rsqrt neg reciprocal masked_fill".split())


def _unsqueezed(g, shape, dim=None):
    for d, n in enumerate(shape):
        if n == 1 and (dim is None or d == dim % len(shape)):
            g = g.unsqueeze(d)
    return g


def _permuted_back(g, dims):
    back = [0] * len(dims)
    for at, d in enumerate(dims):
        back[d % len(dims)] = at
    return g.permute(back)


#: Views: the gradient of the viewed tensor, from its size and the op's other arguments.
VIEWS = {
    "view": lambda g, shape, size: g.reshape(shape), "t": lambda g, shape: g.t(), "transpose": lambda g, shape, a, b: g.transpose(a, b),
    "permute": lambda g, shape, dims: _permuted_back(g, dims), "alias": lambda g, shape: g,
    "expand": lambda g, shape, size, **options: g if g.shape == shape else _summed(g, _Shape(g, shape)),
    "unsqueeze": lambda g, shape, dim: g.squeeze(dim), "squeeze": lambda g, shape, dim=None: _unsqueezed(g, shape, dim),
    "select": lambda g, shape, dim, index: _aten.select_backward.default(g, list(shape), dim, index),
    "slice": lambda g, shape, dim=0, start=0, end=9223372036854775807, step=1: _aten.slice_backward.default(g, list(shape), dim, start or 0, end, step),
    "diagonal": lambda g, shape, offset=0, dim1=0, dim2=1: _aten.diagonal_backward.default(g, list(shape), offset, dim1, dim2),
}


class _Shape:
    """A size to sum a gradient to."""

    def __init__(self, g, shape):
        self.shape, self.dtype = shape, g.dtype


def below_autograd(op, args, kwargs, run):
    """The result of ``run(op, args, kwargs)``, a mode's, recorded with a derivative that modes see."""
    places = tensors_among(args, kwargs) if _C.is_grad_enabled() else ()
    if not any(t.requires_grad for _, _, t in places):
        return run(op, args, kwargs)
    name = op.overloadpacket.__name__
    if name in VIEWS:
        result = run(op, args, kwargs)
        _watch_view(VIEWS[name], result, args, kwargs)
        return result
    rule, keep = RULES.get(name, (None, None))
    in_place = name.endswith("_") and name[:-1] in _IN_PLACE and not (args[0].requires_grad and args[0].is_leaf)
    if in_place:
        rule, keep = RULES[name[:-1]]
        in_place = not (0 in keep and any(keep[0] in (None, place) and t.requires_grad for place, _, t in places))
    if rule is None or kwargs.get("out") is not None or name.endswith("_") and not in_place:
        return run(op, args, kwargs)
    before = _C._set_grad_enabled(False)
    try:
        result = run(op, args, kwargs)
    finally:
        _C._set_grad_enabled(before)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    if not all(isinstance(r, Tensor) for r in results) or not in_place and any(r is t for r in results for _, _, t in places):
        return result
    return _record(name, rule, keep, places, args, kwargs, result, results, run)


def _record(name, rule, keep, places, args, kwargs, result, results, run):
    needs = frozenset(place for place, _, t in places if t.requires_grad)
    kept = [(place, at, t) for place, at, t in places if place in keep and (keep[place] is None or keep[place] in needs)]
    saved = [t for _, _, t in kept]
    in_place = results[0] is args[0]
    many, count, with_results = name in _MANY, len(saved), "r" in keep and (keep["r"] is None or keep["r"] in needs)
    likes = {(place, at): _Kept(t) for place, at, t in places}
    rest = {place: [None if isinstance(v, Tensor) else v for v in value] if type(value) in (list, tuple) else value
            for place, value in [*enumerate(args), *kwargs.items()] if not isinstance(value, Tensor)}
    size = len(results)
    numbers = _NUMBERS.get(name, (0,)) if many and size > 1 else (0,)
    detached = _DETACHED.get(name, ()) if many and size > 1 else (0,)
    spots, positions, names = [(place, at) for place, at, _ in places], len(args), list(kwargs)
    keys = [(place, at) for place, at, _ in kept]

    def backward(saved, gradients):
        values = dict(rest)
        for (place, at), value in {**likes, **dict(zip(keys, saved))}.items():
            if at is None:
                values[place] = value
            else:
                values[place] = list(values[place])
                values[place][at] = value
        found = dict(zip(numbers, saved[count:]))
        results = [_aten.detach.default(found[at]) if at in detached else found.get(at) for at in range(size)] if with_results else None
        given = [values[n] for n in range(positions)]
        found = rule(needs, gradients if many else gradients[0], results if many or results is None else results[0], *given, **{n: values[n] for n in names})
        found = dict(enumerate(found))

        def of(place, at):
            g = found.get(place)
            g = g if at is None or g is None else g[at]
            return None if g is None or place not in needs else _summed(g, likes[place, at])

        return [of(place, at) for place, at in spots]

    if many and len(results) == 1:
        # A function that reduces to one number, by the name of those with indices.
        many = False
    constant = [r for r in results if not (r.is_floating_point() or r.is_complex())]
    title = "".join(part.capitalize() for part in name.split("_") if part)
    if with_results:
        # A node that kept its results would keep itself.
        saved += [run(_aten.detach.default, (results[at],), {}) if at in detached else results[at].detach() for at in numbers]
    views = name in ("split", "split_with_sizes", "unbind")
    made, _ = _C._record_function(title, [t for _, _, t in places], results, saved, results if in_place else [], constant, views, backward, None)
    return type(result)(made) if type(result) in (tuple, list) else made[0] if isinstance(result, Tensor) else type(result)(made)


def _watch_view(rule, view, args, kwargs):
    node = view._grad_node if isinstance(view, Tensor) and view is not args[0] else None
    own = args[0]._grad_node
    if node is None or len(node.inputs) != 1 or own is not None and own.id == node.id:
        return
    shape, rest = args[0].shape, args[1:]

    def computed(inputs, outputs):
        return None if outputs[0] is None or inputs[0] is None else (rule(outputs[0], shape, *rest, **kwargs),)

    node.register_hook(computed)


def _own(gradient, leaf, create_graph):
    """A gradient as its leaf keeps it: itself if it lies in memory as the leaf does, otherwise a copy."""
    if create_graph or all(a == b for a, b, n in zip(gradient.stride(), leaf.stride(), leaf.shape) if n > 1):
        return _aten.detach.default(gradient)
    return _aten.copy_.default(_aten.new_empty_strided.default(gradient, list(leaf.shape), list(leaf.stride())), gradient)


class observed:
    """While it is entered, a backward pass from some tensors shows the engine's own calls: sums of gradients that meet, and gradients on their way to leaves."""

    def __init__(self, places, create_graph=False, leaves=True):
        self._places, self._create_graph, self._leaves = places, create_graph, leaves

    def __enter__(self):
        edges, nodes, waiting = {}, {}, []
        for place in self._places:
            if not isinstance(place, Tensor):
                waiting.append(place[0])
            elif place.requires_grad:
                waiting.append(place._gradient_edge()[0])
        while waiting:
            node = waiting.pop()
            if node.id in nodes:
                continue
            nodes[node.id] = node, [None if inner is None else (inner.id, slot) for inner, slot in node.inputs]
            for inner, slot in node.inputs:
                if inner is not None:
                    edges[inner.id, slot] = edges.get((inner.id, slot), 0) + 1
                    waiting.append(inner)
        shared = {edge for edge, count in edges.items() if count > 1}
        partial, self._handles = {}, []
        for node, inputs in nodes.values():
            if any(edge in shared for edge in inputs):
                self._handles.append(node.register_hook(self._adds(inputs, shared, partial)))
            leaf = node.variable
            if any((node.id, slot) in shared for slot in range(node.outputs)) or leaf is not None and self._leaves:
                self._handles.append(node.register_prehook(self._takes(node.id, leaf if self._leaves else None, partial)))
        return self

    def __exit__(self, *exception):
        for handle in self._handles:
            handle.remove()

    @staticmethod
    def _adds(inputs, shared, partial):
        def add(made, _):
            for edge, gradient in zip(inputs, made):
                if edge in shared and gradient is not None:
                    partial[edge] = _aten.add.Tensor(partial[edge], gradient) if edge in partial else gradient

        return add

    def _takes(self, node, leaf, partial):
        def take(gradients):
            found = [partial.pop((node, slot), gradient) for slot, gradient in enumerate(gradients)]
            if leaf is not None and found[0] is not None:
                if leaf.grad is None:
                    found[0] = _own(found[0], leaf, self._create_graph)
                elif not self._create_graph:
                    _aten.add_.Tensor(leaf.grad, found[0])
                    found[0] = None
            return tuple(found)

        return take
