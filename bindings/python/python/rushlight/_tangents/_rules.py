"""Rules of forward mode, by name: functions that are linear, linear in each argument, or of elements; all others are differentiated twice, one by one."""

from .. import _C
from .._batch import levels
from .._batch._random import RANDOM
from ..overrides import _modes
from . import Level, Tensor, _batched_as, _torch, along, detached, is_number, leaf, mapped, recording, tensors_of

_OUT = "{}(): an out= function has no forward mode, and one of the arguments has a tangent. Use the function's result"


def call(level, func, name, args, kwargs):
    """The result of a function of tensors that have tangents, with its own."""
    if kwargs.get("out") is not None:
        raise RuntimeError(_OUT.format(name))
    if name == "__setitem__" or _is_in_place(func):
        return _in_place(level, func, name, args, kwargs)
    at = _INPLACE_ARGUMENT.get(name)
    if at is not None and (kwargs.get("inplace") or len(args) > at and args[at] is True):
        return _written(level, args[0], level.__torch_function__(func, (), *_not_in_place(at, args, kwargs)))
    args, kwargs = _joined(level, args, kwargs)
    rule = RULES.get(name)
    if rule is not None:
        return rule(level, func, args, kwargs)
    inner = getattr(func, "__wrapped__", None)
    if inner is None or name in RANDOM:
        return general(level, func, args, kwargs)
    with level:
        return inner(*args, **kwargs)


def _joined(level, args, kwargs):
    """Arguments of a call that the tape records: all tensors with tangents are on it."""
    if not _C.is_grad_enabled() or not any(t.requires_grad for t in tensors_of((args, kwargs))):
        return args, kwargs
    return mapped(level.join, args), mapped(level.join, kwargs)


def _duals(level, args, kwargs):
    """The tensors of a call with their tangents, each once."""
    found = {id(t): (t, level.tangent(t)) for t in tensors_of((args, kwargs)) if is_number(t)}
    return [pair for pair in found.values() if pair[1] is not None]


def _is_recorded(args, kwargs, tangents):
    return _C.is_grad_enabled() and any(t.requires_grad for t in (*tensors_of((args, kwargs)), *tangents))


def _replaced(leaves, args, kwargs):
    def one(tensor):
        return leaves.get(id(tensor), tensor)

    return mapped(one, args), mapped(one, kwargs)


def _numbers(value):
    return [t for t in tensors_of(value) if is_number(t)]


# Functions in general.


def general(level, func, args, kwargs):
    """The derivative of one call, by its gradients' derivative by their weight."""
    pairs = _duals(level, args, kwargs)
    tangents = [t for _, t in pairs]
    recorded = _is_recorded(args, kwargs, tangents)
    batched = any(b.mentions(tangent) and not b.mentions(primal) for b in levels() for primal, tangent in pairs)
    # Random numbers are drawn once.
    once = not batched or getattr(func, "__name__", "") in RANDOM
    result = None if once else func(*args, **kwargs)
    if not once and not _numbers(result):
        return result
    temporary = []
    with recording():
        leaves = {id(primal): leaf(primal, temporary) for primal, _ in pairs}
        given, named = _replaced(leaves, args, kwargs)
        if not once:
            given, named = _without_statistics(func, given, named)
        made = func(*given, **named)
        outputs = _numbers(made)
        found = along(outputs, list(leaves.values()), tangents, recorded)
    if not recorded:
        for mode, entry in temporary:
            mode.drop_source(entry)
    if once:
        result = made if recorded else mapped(lambda t: detached(t) if t.requires_grad else t, made)
    for output, tangent in zip(_numbers(result), found):
        if tangent is not None:
            level.attach(output, tangent)
    return result


def _without_statistics(func, args, kwargs):
    """A second call of a normalisation over a batch leaves running statistics alone."""
    if getattr(func, "__name__", "") not in ("batch_norm", "instance_norm"):
        return args, kwargs
    training = kwargs.get("training", kwargs.get("use_input_stats", args[5] if len(args) > 5 else func.__name__ == "instance_norm"))
    if not training:
        return args, kwargs
    return (args[0], *([None, None][: len(args) - 1]), *args[3:]), {**kwargs, **{k: None for k in ("running_mean", "running_var") if k in kwargs}}


def applied(level, function, args, kwargs):
    """``autograd.Function.apply``: the class's own ``jvp``, or the derivative of its ``backward``."""
    from ..autograd.function import Function

    args, kwargs = _joined(level, args, kwargs)
    if getattr(function, "jvp", None) in (None, Function.jvp):
        return general(level, function.apply, args, kwargs)
    args, ctx, single, outputs = function._run(args, kwargs)
    tangents = []
    for value in args:
        tangent = level.tangent(value) if isinstance(value, Tensor) else None
        if tangent is None and isinstance(value, Tensor) and is_number(value) and ctx._materialize:
            tangent = _torch.zeros_like(value)
        tangents.append(tangent)
    ctx._saved = getattr(ctx, "saved_for_forward", ())
    try:
        found = function.jvp(ctx, *tangents)
    finally:
        ctx._saved = None
    found = found if isinstance(found, (tuple, list)) else (found,)
    if len(found) != len(outputs):
        raise RuntimeError(f"{function.__name__}.jvp: expected {len(outputs)} tangents, one for each output, got {len(found)}")
    for output, tangent in zip(outputs, found):
        if tangent is not None and isinstance(output, Tensor):
            if tuple(tangent.shape) != tuple(output.shape):
                raise RuntimeError(f"{function.__name__}.jvp: a tangent of shape {tuple(tangent.shape)} for an output of shape {tuple(output.shape)}")
            level.attach(output, tangent)
    return outputs[0] if single else tuple(outputs)


# Functions of elements.


def pointwise(level, func, args, kwargs):
    """A function of elements that broadcasts: the tangents times its own derivatives."""
    pairs = _duals(level, args, kwargs)
    if any(t.is_complex() for t in tensors_of((args, kwargs))) and getattr(func, "__name__", "").strip("_") not in _HOLOMORPHIC:
        return general(level, func, args, kwargs)
    result = func(*args, **kwargs)
    if not isinstance(result, Tensor) or not is_number(result):
        return result
    if any(primal.is_complex() != result.is_complex() for primal, _ in pairs):
        return general(level, func, args, kwargs)
    from ..autograd import grad

    tangents = [t for _, t in pairs]
    recorded = _is_recorded(args, kwargs, tangents)
    # Sources of other levels are batched at every level.
    batched = any(b.mentions((args, kwargs)) for b in levels()) or any(isinstance(m, Level) and m.tangent(p) is not None for m in _modes.stack for p, _ in pairs)
    temporary, leaves = [], {}
    with recording():
        for primal, _ in pairs:
            wide = primal if tuple(primal.shape) == tuple(result.shape) else primal.expand(result.shape)
            leaves[id(primal)] = leaf(wide, temporary) if batched else _plain_leaf(wide)
        given, named = _replaced(leaves, args, kwargs)
        made = func(*given, **named)
        slopes = grad(made, list(leaves.values()), _torch.ones_like(made), create_graph=recorded, allow_unused=True) if made.requires_grad else [None] * len(pairs)
    if not recorded:
        for mode, entry in temporary:
            mode.drop_source(entry)
    terms = [(s.conj() if s.is_complex() else s) * t for s, t in zip(slopes, tangents) if s is not None]
    if terms:
        level.attach(result, _sum(terms))
    return result


def _plain_leaf(tensor):
    """A leaf that is no more batched than its tensor."""
    return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()


def _sum(terms):
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


# Linear functions.


def _first(args, kwargs):
    """The first argument by position."""
    if args:
        return args, kwargs
    name = next(iter(kwargs))
    return (kwargs[name],), {k: v for k, v in kwargs.items() if k != name}


def _attach_all(level, result, tangent):
    """Gives the tensors of a result the tangents that another call gave."""
    for output, found in zip(tensors_of(result), tensors_of(tangent)):
        if is_number(output):
            level.attach(output, found)
    return result


def linear(level, func, args, kwargs):
    """A function that is linear in its first tensor."""
    result = func(*args, **kwargs)
    args, kwargs = _first(args, kwargs)
    tangent = level.tangent(args[0]) if isinstance(args[0], Tensor) else None
    if tangent is None or not _numbers(result):
        return result
    return _attach_all(level, result, func(tangent, *args[1:], **kwargs))


def _converted(level, func, args, kwargs):
    """Another dtype, device or memory format, of which the tangent needs only the first two."""
    result = func(*args, **kwargs)
    args, kwargs = _first(args, kwargs)
    rest = [a for a in args[1:] if not isinstance(a, _C.memory_format)]
    level.attach(result, func(level.tangent(args[0]), *rest, **{k: v for k, v in kwargs.items() if k != "memory_format"}))
    return result


def _view(level, func, args, kwargs):
    """Other sizes: the tangent may lie otherwise in memory."""
    args, kwargs = _first(args, kwargs)
    if any(isinstance(a, _C.dtype) for a in (*args[1:], *kwargs.values())):
        return linear(level, func, args, kwargs)
    result = func(*args, **kwargs)
    tangent = level.tangent(args[0])
    if tangent is not None:
        level.attach(result, tangent.reshape(result.shape))
    return result


def _as_strided(level, func, args, kwargs):
    result = func(*args, **kwargs)
    (x, *rest), kwargs = _first(args, kwargs)
    tangent = level.tangent(x)
    if tangent is not None:
        if tuple(tangent.stride()) != tuple(x.stride()) or tangent.storage_offset() != x.storage_offset():
            # In memory of its own, of the same strides.
            names = dict(zip(("size", "stride", "storage_offset"), rest), **kwargs)
            offset = names.get("storage_offset")
            place = (x.storage_offset() if offset is None else offset) - x.storage_offset()
            level.attach(result, (_torch.zeros_like(x) + tangent).as_strided(names["size"], names["stride"], place))
        else:
            level.attach(result, func(tangent, *rest, **kwargs))
    return result


def jointly(level, func, args, kwargs):
    """A function that is linear in all of its tensors at once."""
    result = func(*args, **kwargs)

    def one(tensor):
        if not is_number(tensor):
            return tensor
        tangent = level.tangent(tensor)
        return _torch.zeros_like(tensor) if tangent is None else tangent

    return _attach_all(level, result, func(*mapped(one, args), **mapped(one, kwargs)))


def _masked_select(level, func, args, kwargs):
    options = {**dict(zip(("input", "mask"), args)), **kwargs}
    result, x, mask = func(*args, **kwargs), options["input"], options["mask"]
    tangent, sizes = level.tangent(x), _torch.where(mask, x, x).shape
    level.attach(result, tangent.expand(sizes)[mask.expand(sizes)])
    return result


def _logcumsumexp(level, func, args, kwargs):
    result = func(*args, **kwargs)
    (x, *rest), kwargs = _first(args, kwargs)
    dim = rest[0] if rest else kwargs["dim"]
    weights = (x - (x.real if x.is_complex() else x).amax(dim, True)).exp()
    level.attach(result, (weights * level.tangent(x)).cumsum(dim) / weights.cumsum(dim))
    return result


def _norm(level, func, args, kwargs):
    """Norms: each element has a part in one of them only, and the subgradient at zero is that of the gradient."""
    from ..autograd import grad

    (x, *rest), kwargs = _first(args, kwargs)
    options = {**dict(zip(("ord", "dim", "keepdim"), rest)), **kwargs}
    result, dim = func(x, *rest, **kwargs), options.get("dim", (-2, -1) if getattr(func, "__name__", "") == "matrix_norm" else None)
    recorded = _is_recorded((x,), {}, [level.tangent(x)])
    batched = any(b.mentions(x) for b in levels()) or any(isinstance(m, Level) and m.tangent(x) is not None for m in _modes.stack)
    temporary = []
    with recording():
        given = leaf(x, temporary) if batched else _plain_leaf(x)
        made = func(given, *rest, **kwargs)
        (slope,) = grad(made, [given], _torch.ones_like(made), create_graph=recorded, allow_unused=True) if made.requires_grad else (None,)
    if not recorded:
        for mode, entry in temporary:
            mode.drop_source(entry)
    if slope is None:
        return result
    term = slope * level.tangent(x) if not x.is_complex() else (slope.conj() * level.tangent(x)).real
    over = list(range(x.dim())) if dim is None or dim == () or dim == [] else dim
    level.attach(result, (term.sum(over, bool(options.get("keepdim"))) if x.dim() else term).to(result.dtype))
    return result


def _scatter(level, func, args, kwargs):
    """``scatter`` of a tensor; of a number, its places become constant."""
    if kwargs.get("reduce") is not None:
        return general(level, func, args, kwargs)
    values = {**dict(zip(("input", "dim", "index", "src"), args)), **kwargs}
    if isinstance(values.get("src"), Tensor):
        return jointly(level, func, args, kwargs)
    result = func(*args, **kwargs)
    if level.tangent(values["input"]) is not None:
        level.attach(result, _torch.scatter(level.tangent(values["input"]), values["dim"], values["index"], 0.0))
    return result


def multilinear(level, func, args, kwargs):
    """A function that is linear in each of its tensors: one term for each that has a tangent."""
    result = func(*args, **kwargs)
    everything = tensors_of((args, kwargs))
    terms = []
    for place, tensor in enumerate(everything):
        tangent = level.tangent(tensor)
        if tangent is None:
            continue
        rest = iter(range(len(everything)))
        given, named = mapped(lambda t: tangent if next(rest) == place else t, (args, kwargs))
        terms.append(func(*given, **named))
    if terms and isinstance(result, Tensor):
        level.attach(result, _sum(terms))
    return result


def _affine(names, bias_shape):
    """A product of an input and a weight, and a bias."""

    def rule(level, func, args, kwargs):
        result = func(*args, **kwargs)
        options = {**dict(zip(names, args)), **kwargs}
        input, weight, bias = options.pop("input"), options.pop("weight"), options.pop("bias", None)
        rest = args[3:] if len(args) > 3 else ()
        options = {k: v for k, v in options.items() if k in kwargs}
        terms = []
        if level.tangent(input) is not None:
            terms.append(func(level.tangent(input), weight, None, *rest, **options))
        if level.tangent(weight) is not None:
            terms.append(func(input, level.tangent(weight), None, *rest, **options))
        if bias is not None and level.tangent(bias) is not None:
            terms.append(level.tangent(bias).reshape(bias_shape(result)) if bias_shape else level.tangent(bias))
        if terms:
            level.attach(result, _sum(terms))
        return result

    return rule


def _addition(own, other, scaled=1):
    """``add``, ``sub`` and ``rsub`` with the signs of their arguments, of which ``alpha`` scales one."""

    def rule(level, func, args, kwargs):
        result = func(*args, **kwargs)
        alpha = kwargs.get("alpha", 1)
        values = [*args, *(kwargs[k] for k in ("input", "other") if k in kwargs)]
        terms = []
        for place, (value, sign) in enumerate(zip(values, (own, other))):
            tangent = level.tangent(value) if isinstance(value, Tensor) else None
            if tangent is not None:
                factor = sign * (alpha if place == scaled else 1)
                terms.append(tangent if factor == 1 else tangent * factor)
        if terms:
            level.attach(result, _sum(terms))
        return result

    return rule


def _div(level, func, args, kwargs):
    if kwargs.get("rounding_mode") is not None:
        result = func(*args, **kwargs)
        level.attach(result, _torch.zeros_like(result))
        return result
    args, kwargs = _first(args, kwargs)
    other = args[1] if len(args) > 1 else kwargs.get("other")
    return linear(level, func, args, kwargs) if not isinstance(other, Tensor) or level.tangent(other) is None else pointwise(level, func, args, kwargs)


def _where(level, func, args, kwargs):
    result = func(*args, **kwargs)
    values = [*args, *(kwargs[k] for k in ("condition", "input", "self", "other") if k in kwargs)]
    at = next((k for k, v in enumerate(values) if isinstance(v, Tensor) and v.dtype in (_C.bool, _C.uint8)), None)
    if at is None or len(values) != 3:
        return result
    condition = values.pop(at)

    def part(value):
        tangent = level.tangent(value) if isinstance(value, Tensor) else None
        return _torch.zeros((), dtype=result.dtype, device=result.device) if tangent is None else tangent

    level.attach(result, _torch.where(condition, part(values[0]), part(values[1])))
    return result


def _masked_fill(level, func, args, kwargs):
    options = {**dict(zip(("input", "mask", "value"), args)), **kwargs}
    if isinstance(options["value"], Tensor) and level.tangent(options["value"]) is not None:
        return general(level, func, args, kwargs)
    result = func(*args, **kwargs)
    level.attach(result, _torch.masked_fill(level.tangent(options["input"]), options["mask"], 0))
    return result


def _pad(level, func, args, kwargs):
    result = func(*args, **kwargs)
    options = {**dict(zip(("input", "pad", "mode", "value"), args)), **kwargs}
    options["value"] = None
    level.attach(result, func(level.tangent(options.pop("input")), **options))
    return result


# Functions in place.


def _is_in_place(func):
    from .._batch import _is_in_place as known

    return known(func)


_OPERATORS = {"ipow": "pow", "ifloordiv": "floor_divide", "imatmul": "matmul", "imod": "remainder", "itruediv": "div", "idiv": "div", "iadd": "add", "isub": "sub", "imul": "mul"}
_RANDOMS = frozenset("normal_ uniform_ bernoulli_ exponential_ random_ cauchy_ geometric_ log_normal_".split())
_SHAPES = frozenset("squeeze_ unsqueeze_ transpose_ t_ swapaxes_ swapdims_".split())
#: Functions with an argument that asks for the change of their input, by its place.
_INPLACE_ARGUMENT = {
    **dict.fromkeys("relu relu6 selu silu mish hardswish hardsigmoid".split(), 1), **dict.fromkeys("elu celu leaky_relu".split(), 2),
    **dict.fromkeys("hardtanh threshold dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout".split(), 3), "rrelu": 4,
}


def _not_in_place(at, args, kwargs):
    args = (*args[:at], False, *args[at + 1:]) if len(args) > at else args
    return args, {k: v for k, v in kwargs.items() if k != "inplace"}


def _written(level, target, made):
    """Writes a result with its tangent to a tensor."""
    if made is target:
        return target
    tangent = level.tangent(made)
    target.copy_(made)
    level.write(target, _torch.zeros_like(target) if tangent is None else tangent)
    return target


def _in_place(level, func, name, args, kwargs):
    target = args[0]
    if not is_number(target):
        return func(*args, **kwargs)
    if name == "__setitem__":
        return _set_item(level, func, *args)
    if name == "detach_":
        func(*args, **kwargs)
        level.forget(target)
        return target
    if name in _SHAPES:
        tangent = level.tangent(target)
        func(*args, **kwargs)
        if tangent is not None:
            level.attach(target, getattr(Tensor, func.__name__[:-1])(tangent, *args[1:], **kwargs))
        return target
    if name == "zero_" or name in _RANDOMS or name == "fill_" and not tensors_of((args[1:], kwargs)):
        func(*args, **kwargs)
        level.write(target, _torch.zeros_like(target))
        return target
    if name in ("copy_", "fill_"):
        (_, source, *rest), kwargs = _joined(level, args if len(args) > 1 else (*args, *kwargs.values()), kwargs if len(args) > 1 else {})
        func(target, source, *rest, **kwargs)
        tangent = level.tangent(source) if isinstance(source, Tensor) else None
        level.write(target, _torch.zeros_like(target) if tangent is None else tangent.to(target.dtype).expand(target.shape))
        return target
    plain = getattr(Tensor, _OPERATORS.get(name, name[:-1] if name.endswith("_") else name), None)
    if plain is None:
        raise RuntimeError(f"{name}: has no forward derivative in place; use a function that makes a new tensor")
    made = level.__torch_function__(plain, (), args, kwargs)
    if tuple(made.shape) != tuple(target.shape) or made.is_complex() and not target.is_complex():
        # The function says why not.
        return func(*args, **kwargs)
    return _written(level, target, made)


def _set_item(level, func, target, index, source):
    tangent, change = level.tangent(target), level.tangent(source) if isinstance(source, Tensor) else None
    whole = _torch.zeros_like(target) if tangent is None else tangent
    whole = whole.clone() if change is None else _batched_as(whole, change)
    whole[index] = 0 if change is None else change.to(whole.dtype)
    if isinstance(source, Tensor) and _C.is_grad_enabled() and (source.requires_grad or target.requires_grad):
        new = level.join(target).clone()
        new[index] = level.join(source)
        target.copy_(new)
    else:
        func(target, index, source)
    level.write(target, whole)


# The table.

_LINEAR = (
    "expand expand_as broadcast_to repeat tile permute transpose movedim squeeze unsqueeze t T mT H mH adjoint diagonal diag diag_embed diagflat trace select narrow "
    "narrow_copy chunk split tensor_split unsafe_chunk unsafe_split split_with_sizes unbind hsplit vsplit dsplit rot90 flip fliplr flipud roll tril triu unfold __getitem__ "
    "index_select gather take take_along_dim masked_select type type_as clone contiguous real imag conj conj_physical resolve_conj "
    "resolve_neg view_as_real view_as_complex sum mean cumsum neg positive pos fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 hfft2 ihfft2 fftn ifftn rfftn irfftn hfftn "
    "ihfftn fftshift ifftshift sum_to_size pixel_shuffle pixel_unshuffle channel_shuffle repeat_interleave F.unfold F.fold avg_pool1d avg_pool2d avg_pool3d "
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d deg2rad rad2deg max_unpool1d max_unpool2d max_unpool3d linalg.diagonal linalg.matrix_transpose cpu cuda"
).split()
_ALL = "cat stack hstack vstack dstack column_stack block_diag broadcast_tensors meshgrid complex atleast_1d atleast_2d atleast_3d index_put index_add index_copy scatter_add masked_scatter select_scatter slice_scatter diagonal_scatter".split()
_EACH = "mul matmul mm bmm mv dot vdot inner outer tensordot einsum kron linalg.multi_dot chain_matmul cross linalg.cross linalg.vecdot linalg.matmul rmatmul rmul".split()
_ELEMENTS = (
    "abs acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atan2 atanh ceil clamp clamp_max clamp_min copysign cos cosh digamma erf erfc "
    "erfinv exp exp2 expm1 fix float_power floor fmax fmin fmod frac hypot i0 i0e i1 i1e lgamma log log10 log1p log2 logaddexp logaddexp2 logit maximum minimum "
    "nan_to_num ndtri log_ndtr entr erfcx expit gammaln psi polygamma pow reciprocal relu remainder round rsqrt sigmoid sign sgn sin sinc sinh softplus sqrt square tan tanh "
    "threshold trunc xlogy xlog1py rpow rdiv rtruediv rmod celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softshrink softsign "
    "tanhshrink absolute mvlgamma multigammaln ldexp lerp addcmul addcdiv"
).split()
_HOLOMORPHIC = frozenset(
    "acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh cos cosh div true_divide divide exp exp2 expm1 log log10 log1p log2 pow reciprocal rsqrt "
    "rtruediv rdiv rpow sigmoid sin sinc sinh sqrt square tan tanh float_power addcmul addcdiv lerp".split()
)

RULES = {
    **dict.fromkeys(_LINEAR, linear), **dict.fromkeys(_ALL, jointly), **dict.fromkeys(_EACH, multilinear), **dict.fromkeys(_ELEMENTS, pointwise),
    **dict.fromkeys("view reshape flatten ravel unflatten view_as reshape_as".split(), _view),
    "as_strided": _as_strided, "add": _addition(1, 1), "sub": _addition(1, -1), "rsub": _addition(-1, 1, 0), "radd": _addition(1, 1), "div": _div, "where": _where, **dict.fromkeys("to double float half bfloat16 cfloat cdouble chalf".split(), _converted), "masked_select": _masked_select, "logcumsumexp": _logcumsumexp, **dict.fromkeys(("norm", "linalg.norm", "linalg.vector_norm", "linalg.matrix_norm"), _norm), "scatter": _scatter,
    "masked_fill": _masked_fill, "pad": _pad, "linear": _affine(("input", "weight", "bias"), None),
    **{f"conv{n}d": _affine(("input", "weight", "bias"), lambda made, n=n: (-1, *[1] * n)) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _affine(("input", "weight", "bias"), lambda made, n=n: (-1, *[1] * n)) for n in (1, 2, 3)},
}
