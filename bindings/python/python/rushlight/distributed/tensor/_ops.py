"""Ops on ``DTensor``: each names its sharding rule; the compiled part chooses placements, the op itself runs on local parts."""

from ... import _C
from . import _overlap
from ._api import DTensor
from .placement_types import Replicate, Shard, _codes, _placement

Tensor = _C.Tensor

#: Whether plain tensors beside DTensors count as replicated (``experimental.implicit_replication``).
implicit_replication = False

_NONLINEAR = frozenset(
    """relu gelu silu sigmoid tanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt abs pow square sin cos tan asin acos atan sinh cosh erf erfc floor ceil round trunc
    sign reciprocal where masked_fill clamp clip clamp_min clamp_max maximum minimum eq ne lt le gt ge logical_and logical_or logical_not logical_xor isnan isinf
    isfinite softplus elu selu celu leaky_relu hardtanh hardswish hardsigmoid mish logsigmoid relu6 threshold remainder fmod floor_divide addcmul addcdiv lerp atan2
    bitwise_and bitwise_or bitwise_not bitwise_xor bool long int __and__ __or__ __xor__ __invert__ __pow__ __rpow__ __floordiv__ rsub __rsub__ __rtruediv__
    nan_to_num xlogy sinc frac tril_ triu_""".split()
)
_ADDITIVE = frozenset("add sub subtract neg negative clone contiguous to type float double half bfloat16 cpu cuda xpu alias positive view_as type_as".split())
_CONVERSIONS = frozenset("clone contiguous to type float double half bfloat16 cpu cuda xpu alias positive neg negative type_as".split())
_LIKE = frozenset("zeros_like ones_like empty_like full_like new_zeros new_ones new_empty".split())
_RANDOM_LIKE = frozenset("rand_like randn_like".split())
_FILLS = frozenset("zero_ fill_".split())
_UNARY_IN_PLACE = frozenset("abs_ clamp_max_ clamp_min_ erf_ erfinv_ exp_ floor_ log_ pow_ reciprocal_ relu_ round_ rsqrt_ sigmoid_ square_ tanh_".split())
_RANDOM_FILLS = frozenset("normal_ uniform_ bernoulli_ exponential_ random_ log_normal_ cauchy_ geometric_ trunc_normal_".split())
_REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min", "prod": "other", "var": "other", "std": "other", "argmax": "other",
               "argmin": "other", "logsumexp": "other", "all": "other", "any": "other", "norm": "other", "cumsum": None}
_LOCAL = frozenset("is_floating_point is_complex register_hook register_post_accumulate_grad_hook is_contiguous element_size get_device retain_grad requires_grad_ "
                   "data_ptr untyped_storage storage is_pinned _gradient_edge has_names is_shared".split())


def _flat(args, kwargs):
    """All tensors among arguments, also within lists."""
    found = []
    for value in (*args, *kwargs.values()):
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, Tensor):
                found.append(item)
    return found


def _map(value, swap):
    if isinstance(value, Tensor):
        return swap(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value):
        return type(value)(_map(item, swap) for item in value)
    return value


def _refusal(name, tensors):
    placed = ", ".join(f"{tuple(t.shape)} {t.placements}" for t in tensors if isinstance(t, DTensor))
    return NotImplementedError(f"Operator {name} does not have a sharding strategy registered: its inputs are placed {placed}. Use to_local() or full_tensor().")


def _inputs(name, tensors):
    """The distributed inputs; plain ones must be numbers."""
    found = []
    for t in tensors:
        if isinstance(t, DTensor):
            if not any(t is other for other in found):
                found.append(t)
        elif t.dim() != 0:
            raise RuntimeError(f"{name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!")
    if any(t._mesh != found[0]._mesh for t in found):
        raise RuntimeError(f"{name}: the meshes of the inputs differ; redistribute to one mesh first")
    return found


def _plan(name, rule, inputs):
    described = [(list(t._shape), _codes(t._placements)) for t in inputs]
    return _C._Plan(name, rule, described, inputs[0]._mesh._core)


def _prepare(plan, inputs):
    return {id(t): plan.prepare(i, t._local_tensor, list(t._shape), _codes(t._placements)) for i, t in enumerate(inputs)}


def _out(plan, local, mesh, shape=None):
    placements = tuple(_placement(code) for code in plan.output)
    return DTensor._of(local, mesh, placements, plan.shape if shape is None else shape)


def _run(func, name, rule, args, kwargs, inputs=None):
    """Runs an op by a rule of (kind, word, numbers, flag)."""
    inputs = _inputs(name, _flat(args, kwargs)) if inputs is None else inputs
    plan = _plan(name, rule, inputs)
    locals_ = _prepare(plan, inputs)
    swap = lambda t: locals_.get(id(t), t)
    result = func(*(_map(a, swap) for a in args), **{k: _map(v, swap) for k, v in kwargs.items()})
    if isinstance(result, Tensor):
        return _out(plan, result, inputs[0]._mesh)
    raise _refusal(name, inputs)


def _dims(tensor, given):
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return list(range(tensor.dim()))
    return [d % max(tensor.dim(), 1) for d in (given if isinstance(given, (list, tuple)) else (given,))]


def _argument(args, kwargs, at, name, default=None):
    return args[at] if len(args) > at else kwargs.get(name, default)


def _in_place(func, name, args, kwargs):
    target, inputs = args[0], _inputs(name, _flat(args, kwargs))
    if not isinstance(target, DTensor):
        raise RuntimeError(f"{name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!")
    locals_ = {id(target): target._local_tensor}
    for t in inputs:
        if t is not target:
            if t._shape != target._shape and t.numel() != 1:
                raise _refusal(name, inputs)
            placements = target._placements if t._shape == target._shape else [Replicate()] * target._mesh.ndim
            locals_[id(t)] = t.redistribute(placements=placements)._local_tensor
    swap = lambda t: locals_.get(id(t), t)
    if any(p.is_partial() for p in target._placements) and name not in _FILLS | {"mul_", "div_", "copy_"}:
        raise _refusal(name, inputs)
    func(*(_map(a, swap) for a in args), **{k: _map(v, swap) for k, v in kwargs.items()})
    return target


def _fill_random(func, args, kwargs):
    """Each rank draws the whole and keeps its part, so the values are those of one process with the same seed; replicas copy rank 0's."""
    from .. import broadcast

    target = args[0]
    local = target._local_tensor.detach()
    whole = _C._torch.empty(target._shape, dtype=local.dtype, device=local.device)
    func(whole, *args[1:], **kwargs)
    for dim, (start, size) in enumerate(_C._local_part(list(target._shape), target._mesh._core, _codes(target._placements))):
        whole = whole.narrow(dim, start, size)
    whole = whole.contiguous()
    for i, p in enumerate(target._placements):
        if p.is_replicate() and target._mesh.size(i) > 1:
            broadcast(whole, group=target._mesh.get_group(i), group_src=0)
    before = _C._set_grad_enabled(False)
    try:
        local.copy_(whole)
    finally:
        _C._set_grad_enabled(before)
    return target


def _view(name, args, kwargs):
    """The target size of ops that change the shape only."""
    t, rest = args[0], args[1:]
    shape = list(t._shape)
    if name in ("view", "reshape"):
        rest = tuple(rest[0]) if len(rest) == 1 and not isinstance(rest[0], int) else rest
        rest = list(rest or kwargs.get("shape", ()))
        if -1 in rest:
            known = 1
            for n in rest:
                known *= n if n != -1 else 1
            rest[rest.index(-1)] = t.numel() // max(known, 1)
        return rest
    if name == "flatten":
        start, end = _argument(args, kwargs, 1, "start_dim", 0) % len(shape), _argument(args, kwargs, 2, "end_dim", -1) % len(shape)
        size = 1
        for n in shape[start : end + 1]:
            size *= n
        return shape[:start] + [size] + shape[end + 1 :]
    dim = _argument(args, kwargs, 1, "dim")
    if name == "unflatten":
        sizes = list(_argument(args, kwargs, 2, "sizes"))
        if -1 in sizes:
            known = 1
            for n in sizes:
                known *= n if n != -1 else 1
            sizes[sizes.index(-1)] = shape[dim] // known
        dim %= len(shape)
        return shape[:dim] + sizes + shape[dim + 1 :]
    if name == "unsqueeze":
        dim %= len(shape) + 1
        return shape[:dim] + [1] + shape[dim:]
    dims = range(len(shape)) if dim is None else _dims(t, dim)
    return [n for d, n in enumerate(shape) if d not in dims or n != 1]


def _permutation(name, args, kwargs):
    t, n = args[0], args[0].dim()
    if name in ("t", "__get__T"):
        return list(range(n))[::-1]
    if name == "permute":
        dims = args[1:] or (kwargs["dims"],)
        dims = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
        return _dims(t, tuple(dims))
    a, b = _argument(args, kwargs, 1, "dim0") % n, _argument(args, kwargs, 2, "dim1") % n
    order = list(range(n))
    order[a], order[b] = order[b], order[a]
    return order


def _linear(func, args, kwargs):
    made = _overlap.linear(_argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "weight"))
    if made is None:
        return _run(func, "linear", ("linear", "", [], False), args, kwargs)
    bias = _argument(args, kwargs, 2, "bias")
    return made if bias is None else _add(made, bias)


def _embedding(func, args, kwargs):
    ids, weight = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "weight")
    if not isinstance(ids, DTensor):
        ids = DTensor._of(ids, weight._mesh, (Replicate(),) * weight._mesh.ndim, ids.shape)
    if not isinstance(weight, DTensor):
        raise _refusal("embedding", [ids])
    if any(v not in (None, 2.0, False) for v in (*args[3:], *(kwargs.get(k) for k in ("max_norm", "norm_type", "scale_grad_by_freq", "sparse")))):
        raise NotImplementedError("embedding of a DTensor: max_norm, scale_grad_by_freq and sparse are not supported")
    plan = _plan("embedding", ("embedding", "", [], False), [weight, ids])
    table, index = _prepare(plan, [weight, ids]).values()
    padding = _argument(args, kwargs, 2, "padding_idx")
    start, size = _C._local_part(list(weight._shape), weight._mesh._core, plan.inputs[0])[0]
    if size == weight._shape[0]:
        return _out(plan, func(index, table, padding), weight._mesh)
    index = index - start
    inside = (index >= 0) & (index < size)
    if padding is not None:
        padding = padding % weight._shape[0] - start
        padding = padding if 0 <= padding < size else None
    # Ids of other ranks give zeros: the ranks' sum is the whole.
    found = func(index.clamp(0, max(size - 1, 0)), table, padding) * inside.unsqueeze(-1).to(table.dtype)
    return _out(plan, found, weight._mesh)


def _loss(func, name, args, kwargs):
    scores, target = args[0], _argument(args, kwargs, 1, "target")
    reduction = kwargs.get("reduction", "mean")
    from .parallel.loss import enabled, vocabulary_loss

    mesh = scores._mesh if isinstance(scores, DTensor) else target._mesh
    classes = 1 if len(scores.shape) > 1 else 0
    if name == "cross_entropy" and enabled() and any(p.is_shard(classes) for p in scores._placements):
        return vocabulary_loss(scores, target, args[2:], kwargs)
    if not isinstance(target, DTensor):
        target = DTensor._of(target, mesh, (Replicate(),) * mesh.ndim, target.shape)
    if kwargs.get("weight") is not None or len(args) > 2:
        raise NotImplementedError(f"{name} of a DTensor: class weights are not supported; use full_tensor()")
    if len(target.shape) == len(scores.shape):
        raise NotImplementedError(f"{name} of a DTensor: class probabilities as targets are not supported; use full_tensor()")
    # The mean's divisor depends on the targets that are ignored.
    word = {"none": "none", "sum": "sum"}.get(reduction, "other")
    rest = {k: v for k, v in kwargs.items() if k not in ("target", "input")}
    return _run(func, name, ("loss", word, [], False), (scores, target), rest)


def _parts(func, name, args, kwargs):
    """``split`` and ``chunk``: the split dimension must be whole."""
    t, dim = args[0], _argument(args, kwargs, 2, "dim", 0) % args[0].dim()
    plan = _plan(name, ("along", "", [dim], False), [t])
    found = []
    for part in func(_prepare(plan, [t])[id(t)], *args[1:], **kwargs):
        shape = list(t._shape)
        shape[dim] = part.shape[dim]
        found.append(_out(plan, part, t._mesh, shape))
    return tuple(found)


def _expand(t, sizes):
    """Dimensions of size 1 repeated; the others keep their placements."""
    sizes = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)
    if len(sizes) != t.dim():
        raise NotImplementedError(f"expand of a DTensor: {len(sizes)} sizes for {t.dim()} dimensions; unsqueeze it first")
    grown = [d for d, n in enumerate(sizes) if n not in (-1, t._shape[d])]
    plan = _plan("expand", ("along", "", grown, False), [t])
    local = [sizes[d] if d in grown else -1 for d in range(t.dim())]
    shape = [sizes[d] if d in grown else n for d, n in enumerate(t._shape)]
    return _out(plan, _prepare(plan, [t])[id(t)].expand(local), t._mesh, shape)


def dispatch(func, args, kwargs):
    """Runs a function of tensors, some of which are distributed."""
    name = getattr(func, "__name__", str(func))
    tensors = _flat(args, kwargs)
    with _Plain():
        if implicit_replication:
            args, kwargs, tensors = _replicated(args, kwargs, tensors)
        if name in _LOCAL or name in ("__get__", "__set__", "__delete__"):
            return func(*args, **kwargs)
        return _dispatch(func, name, args, kwargs, tensors)


def _replicated(args, kwargs, tensors):
    """Arguments with plain tensors, other than numbers, as replicated DTensors."""
    mesh = next(t._mesh for t in tensors if isinstance(t, DTensor))

    def swap(t):
        return t if isinstance(t, DTensor) or t.dim() == 0 else DTensor._of(t, mesh, (Replicate(),) * mesh.ndim, t.shape)

    args, kwargs = tuple(_map(a, swap) for a in args), {k: _map(v, swap) for k, v in kwargs.items()}
    return args, kwargs, _flat(args, kwargs)


class _Plain:
    """Overrides by classes are off: the inner calls are of local parts."""

    def __enter__(self):
        self.before = _C._set_function_level(1)

    def __exit__(self, *exception):
        _C._set_function_level(self.before)


def _dispatch(func, name, args, kwargs, tensors):
    first = args[0] if args else None
    if name in _FILLS or name in ("add_", "sub_", "mul_", "div_", "copy_", "addcmul_", "addcdiv_", "lerp_", "sqrt_", "clamp_", "neg_", "masked_fill_") or name in _UNARY_IN_PLACE:
        if name == "copy_" and isinstance(args[1], Tensor) and not isinstance(args[1], DTensor) and args[1].dim() > 0:
            raise RuntimeError("copy_: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!")
        return _in_place(func, name, args, kwargs)
    if name in _RANDOM_FILLS:
        return _fill_random(func, args, kwargs)
    if name in _LIKE:
        if name.startswith("new_"):
            raise _refusal(name, tensors)
        placements = tuple(Replicate() if p.is_partial() else p for p in first._placements)
        local = func(first._local_tensor, *args[1:], **kwargs)
        return DTensor._of(local, first._mesh, placements, first._shape)
    if name in _RANDOM_LIKE:
        made = DTensor._of(_C._torch.empty_like(first._local_tensor, **kwargs), first._mesh, first._placements, first._shape)
        return _fill_random(Tensor.uniform_ if name == "rand_like" else Tensor.normal_, (made,), {})
    if name in ("mul", "multiply", "__mul__", "__rmul__"):
        return _run(func, name, ("pointwise", "product", [], False), args, kwargs)
    if name in ("div", "divide", "true_divide", "__truediv__"):
        word = "first" if isinstance(first, DTensor) and not kwargs.get("rounding_mode") else ""
        return _run(func, name, ("pointwise", word, [], False), args, kwargs)
    if name in _ADDITIVE:
        numbers = name not in _CONVERSIONS and not all(isinstance(a, DTensor) for a in args[:2])
        return _run(func, name, ("pointwise", "" if numbers else "sum", [], False), args, kwargs)
    if name in _NONLINEAR:
        return _run(func, name, ("pointwise", "", [], False), args, kwargs)
    if name == "dropout":
        if not _argument(args, kwargs, 1, "p", 0.5) or not _argument(args, kwargs, 2, "training", True):
            return first
        if any(p.is_replicate() and first._mesh.size(i) > 1 for i, p in enumerate(first._placements)):
            raise NotImplementedError("dropout of a replicated DTensor: the ranks would drop different elements; use to_local() with equal seeds, or shard it")
        return _run(func, name, ("pointwise", "product", [], False), args, kwargs)
    if name in ("matmul", "mm", "bmm", "__matmul__"):
        return _run(func, name, ("matmul", "", [], False), args, kwargs)
    if name == "addmm" and not kwargs:
        return _add(args[0], _run(_C._torch.matmul, name, ("matmul", "", [], False), args[1:3], {}))
    if name == "linear":
        return _linear(func, args, kwargs)
    if name in ("embedding",):
        return _embedding(func, args, kwargs)
    if name in ("softmax", "log_softmax"):
        return _run(func, name, ("along", "", _dims(first, _argument(args, kwargs, 1, "dim")), False), args, kwargs)
    if name in ("layer_norm", "rms_norm"):
        count = len(_argument(args, kwargs, 1, "normalized_shape"))
        return _run(func, name, ("along", "", list(range(first.dim() - count, first.dim())), False), args, kwargs)
    if name in _REDUCTIONS and _REDUCTIONS[name]:
        word = _REDUCTIONS[name]
        if word in ("max", "min") and first.requires_grad:
            word = "other"
        at = 2 if name == "norm" else 1
        dims = _dims(first, _argument(args, kwargs, at, "dim"))
        keepdim = bool(_argument(args, kwargs, at + 1, "keepdim", False))
        return _run(func, name, ("reduce", word, dims, keepdim), args, kwargs)
    if name in ("max", "min") and len(args) == 1 and not kwargs:
        return _run(func, name, ("reduce", "other" if first.requires_grad else name, list(range(first.dim())), False), args, kwargs)
    if name in ("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze"):
        plan = _plan(name, ("view", "", [int(n) for n in _view(name, args, kwargs)], False), [first])
        return _out(plan, _prepare(plan, [first])[id(first)].reshape(plan.local), first._mesh)
    if name in ("transpose", "permute", "t", "swapaxes", "swapdims"):
        order = _permutation(name, args, kwargs)
        plan = _plan(name, ("permute", "", order, False), [first])
        return _out(plan, _prepare(plan, [first])[id(first)].permute(order), first._mesh)
    if name == "view_as_complex":
        return _run(func, name, ("reduce", "other", [first.dim() - 1], False), args, kwargs)
    if name == "view_as_real":
        plan = _plan(name, ("along", "", [], False), [first])
        return _out(plan, func(_prepare(plan, [first])[id(first)]), first._mesh, [*plan.shape, 2])
    if name == "expand":
        return _expand(first, args[1:] or (kwargs["size"],))
    if name in ("cat", "concat"):
        listed = list(args[0])
        dim = _argument(args, kwargs, 1, "dim", 0) % listed[0].dim()
        return _run(func, name, ("cat", "", [dim], False), args, kwargs, _inputs(name, listed))
    if name == "stack":
        dim = _argument(args, kwargs, 1, "dim", 0) % (args[0][0].dim() + 1)
        listed = [_dispatch(Tensor.unsqueeze, "unsqueeze", (t, dim), {}, [t]) for t in args[0]]
        return _run(_C._torch.cat, name, ("cat", "", [dim], False), (listed, dim), {}, _inputs(name, listed))
    if name in ("split", "chunk"):
        return _parts(func, name, args, kwargs)
    if name == "scaled_dot_product_attention":
        if _argument(args, kwargs, 3, "attn_mask") is not None:
            raise NotImplementedError("scaled_dot_product_attention of DTensors: masks are not supported; use is_causal or to_local()")
        return _run(func, name, ("attention", "", [], False), args, kwargs)
    if name in ("cross_entropy", "nll_loss"):
        return _loss(func, name, args, kwargs)
    if name == "mse_loss":
        difference = _run(_C._torch.sub, name, ("pointwise", "", [], False), args[:2], {})
        square = _run(Tensor.square, name, ("pointwise", "", [], False), (difference,), {})
        how = kwargs.get("reduction", "mean")
        return square if how == "none" else _run(getattr(Tensor, how), name, ("reduce", how, list(range(square.dim())), False), (square,), {})
    if name == "allclose":
        return func(*(a.full_tensor() if isinstance(a, DTensor) else a for a in args), **kwargs)
    if name in ("equal",):
        return func(*(a.full_tensor() for a in args))
    raise _refusal(name, tensors)


def _add(a, b):
    return _run(_C._torch.add, "add", ("pointwise", "sum", [], False), (a, b), {})
