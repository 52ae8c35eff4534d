"""``__torch_dispatch__``: calls as ops of ``torch.ops.aten``, handled by the class of a tensor or by a mode.

PyTorch splits composed functions before a class or a mode sees them, and chooses an overload by the arguments. ``as_aten`` does the same for the functions
that handlers of libraries know: products, views, indices, conversions. All others keep their name, with the overload ``default``.
"""

import functools

from . import _C, _dispatch_layers, overrides
from ._ops import OpOverloadPacket, known, ops

Tensor = _C.Tensor

#: Functions of two operands whose overload is ``Tensor`` also for a number.
_ARITHMETIC = frozenset("add sub mul div true_divide add_ sub_ mul_ div_".split())
#: Functions with overloads for a tensor and for a number.
_MIXED = frozenset(
    "eq ne lt le gt ge remainder fmod floor_divide bitwise_and bitwise_or bitwise_xor eq_ ne_ lt_ le_ gt_ ge_ masked_fill masked_fill_ fill_ lerp lerp_".split()
)
_BY_INDEX = frozenset("select transpose unbind movedim".split())
#: The names of ``aten`` for other names of the same function.
_NAMES = {
    "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "not_equal": "ne", "swapaxes": "transpose", "swapdims": "transpose", "negative": "neg", "absolute": "abs", "concat": "cat", "concatenate": "cat",
    "view_as": "view", "truediv": "div", "itruediv": "div_", "iadd": "add_", "isub": "sub_", "imul": "mul_", "radd": "add", "rmul": "mul", "rsub": "rsub",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "rand": "bitwise_and", "ror": "bitwise_or", "rxor": "bitwise_xor", "invert": "bitwise_not",
    "iand": "bitwise_and_", "ior": "bitwise_or_", "ixor": "bitwise_xor_", "floordiv": "floor_divide", "mod": "remainder", "ipow": "pow_",
}


def name_of(function):
    """The name of a function of ``torch`` in ``aten``."""
    name = getattr(function, "__name__", None) or "unknown"
    if name == "__get__":
        name = getattr(getattr(function, "__self__", None), "__name__", name)
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
    return _NAMES.get(name, name)


def _overload(name, args, kwargs):
    second = args[1] if len(args) > 1 else kwargs.get("other", kwargs.get("value"))
    if name in _ARITHMETIC:
        return "Tensor"
    if name in _MIXED:
        at = 2 if name.startswith("masked_fill") else 1
        return "Tensor" if isinstance(args[at] if len(args) > at else second, Tensor) else "Scalar"
    if name in _BY_INDEX:
        return "int"
    if name in ("pow", "pow_"):
        return "Scalar" if not isinstance(args[0], Tensor) else "Tensor_Tensor" if isinstance(second, Tensor) else "Tensor_Scalar"
    if name == "sum":
        return "dim_IntList" if len(args) > 1 or "dim" in kwargs else "default"
    if name == "mean":
        return "dim" if len(args) > 1 or "dim" in kwargs else "default"
    if name in ("max", "min", "any", "all", "squeeze"):
        return "default" if len(args) < 2 and "dim" not in kwargs and "other" not in kwargs else "other" if isinstance(second, Tensor) else "dim"
    if name == "where":
        return "self"
    if name == "rsub":
        return "Scalar"
    if name == "empty":
        return "memory_format"
    return "default"


def _sum(call, name, input, dim=None, keepdim=False, *, dtype=None):
    """Reductions give dimensions as a list."""
    kwargs = {} if dtype is None else {"dtype": dtype}
    if dim is None:
        return call(name, "default", (input,), kwargs)
    dims = [dim] if isinstance(dim, int) else list(dim)
    return call(name, "dim_IntList" if name == "sum" else "dim", (input, dims, keepdim) if keepdim else (input, dims), kwargs)


def _matmul(call, a, b):
    ranks = a.dim(), b.dim()
    name = {(1, 1): "dot", (2, 1): "mv", (2, 2): "mm"}.get(ranks)
    if name is not None:
        return call(name, "default", (a, b), {})
    if ranks[0] > 2 and ranks[1] == 2:
        flat = call("view", "default", (a, [-1, a.shape[-1]]), {})
        return call("_unsafe_view", "default", (call("mm", "default", (flat, b), {}), [*a.shape[:-1], b.shape[-1]]), {})
    if min(ranks) < 2:
        return call("matmul", "default", (a, b), {})
    batch = _batch(a.shape[:-2], b.shape[:-2])
    count = 1
    for n in batch:
        count *= n
    sides = []
    for side in (a, b):
        wide = call("expand", "default", (side, [*batch, *side.shape[-2:]]), {})
        sides.append(_view(call, wide, [count, *side.shape[-2:]]))
    return call("_unsafe_view", "default", (call("bmm", "default", tuple(sides), {}), [*batch, a.shape[-2], b.shape[-1]]), {})


def _is_viewable(input, size):
    """Whether the strides of a plain tensor allow a view."""
    if type(input) is not Tensor:
        return False
    try:
        with overrides.DisableTorchFunction():
            input.view(size)
        return True
    except RuntimeError:
        return False


def _batch(a, b):
    """Sizes of two operands together, by the rule of broadcasting."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b)
    return [y if x == 1 else x for x, y in zip(a, b)]


def _linear(call, input, weight, bias=None):
    if bias is None:
        return _matmul(call, input, call("t", "default", (weight,), {}))
    rows = input.numel() // max(input.shape[-1], 1)
    flat = input if input.dim() == 2 else call("view", "default", (input, [rows, input.shape[-1]]), {})
    made = call("addmm", "default", (bias, flat, call("t", "default", (weight,), {})), {})
    return made if input.dim() == 2 else call("_unsafe_view", "default", (made, [*input.shape[:-1], weight.shape[0]]), {})


def _view(call, input, *size):
    size = list(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else list(size)
    if size and isinstance(size[0], _C.dtype):
        return call("view", "dtype", (input, size[0]), {})
    size = list(size[0].shape) if size and isinstance(size[0], Tensor) else size
    if input.is_contiguous() or _is_viewable(input, size):
        return call("view", "default", (input, size), {})
    return call("_unsafe_view", "default", (call("clone", "default", (input,), {"memory_format": _C.contiguous_format}), size), {})


def _sizes(name):
    def made(call, input, *size):
        size = list(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else list(size)
        return call(name, "default", (input, size), {})

    return made


def _flatten(call, input, start_dim=0, end_dim=-1):
    rank = input.dim()
    start, end = start_dim % max(rank, 1), end_dim % max(rank, 1)
    count = 1
    for n in input.shape[start:end + 1]:
        count *= n
    return _view(call, input, [*input.shape[:start], count, *input.shape[end + 1:]])


def _to(call, input, *args, **kwargs):
    copy = kwargs.pop("copy", False)
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    device, dtype, non_blocking, memory_format = _C._nn._parse_to(*args, **kwargs)
    changed = {}
    if dtype is not None and dtype != input.dtype:
        changed["dtype"] = dtype
    if device is not None and _C.device(device) != input.device:
        changed["device"] = device
    if memory_format is not None:
        changed["memory_format"] = memory_format
    if not changed and not copy:
        return input
    return call("_to_copy", "default", (input,), {**changed, **({"non_blocking": True} if non_blocking else {})})


def _contiguous(call, input, memory_format=None):
    if input.is_contiguous():
        return input
    return call("clone", "default", (input,), {"memory_format": memory_format or _C.contiguous_format})


def _split(call, input, split_size, dim=0):
    if isinstance(split_size, int):
        return call("split", "Tensor", (input, split_size, dim) if dim else (input, split_size), {})
    return call("split_with_sizes", "default", (input, list(split_size), dim), {})


def _chunk(call, input, chunks, dim=0):
    return _split(call, input, max(1, -(-input.shape[dim] // chunks)), dim)


def _getitem(call, input, index):
    """Numbers, slices and None give views; tensors and lists one op ``index`` at the end."""
    index = list(index) if isinstance(index, tuple) else [index]
    used = sum(1 for i in index if i is not None and i is not Ellipsis)
    if Ellipsis in [i for i in index if not isinstance(i, Tensor)]:
        at = next(k for k, i in enumerate(index) if i is Ellipsis)
        index[at:at + 1] = [slice(None)] * (input.dim() - used)
    dim, arrays = 0, []
    for i in index:
        if i is None:
            input = call("unsqueeze", "default", (input, dim), {})
            arrays.append(None)
            dim += 1
        elif isinstance(i, slice):
            if i != slice(None):
                start, end = 0 if i.start is None else i.start, 9223372036854775807 if i.stop is None else i.stop
                input = call("slice", "Tensor", (input, dim, start, end, *([i.step] if i.step not in (None, 1) else [])), {})
            arrays.append(None)
            dim += 1
        elif isinstance(i, int) and not isinstance(i, bool):
            input = call("select", "int", (input, dim, i), {})
        else:
            arrays.append(i if isinstance(i, Tensor) else call("lift_fresh", "default", (_C.tensor(i),), {}))
            dim += 1
    return input if all(a is None for a in arrays) else call("index", "Tensor", (input, arrays), {})


def _setitem(call, input, index, value):
    """Numbers, slices and None give views, which are filled or copied to; tensors and lists one op ``index_put_`` at the end."""
    place = []
    view = _getitem(lambda op, overload, args, kwargs: place.extend(args) if op == "index" else call(op, overload, args, kwargs), input, index)
    if place:
        value = value if isinstance(value, Tensor) else call("lift_fresh", "default", (_C.tensor(value, dtype=input.dtype),), {})
        call("index_put_", "default", (place[0], place[1], value), {})
    elif isinstance(value, Tensor):
        call("copy_", "default", (view, value), {})
    else:
        call("fill_", "Scalar", (view, value), {})


def _narrow(call, input, dim, start, length):
    start = int(start)
    start = start + input.shape[dim] if start < 0 else start
    return call("slice", "Tensor", (input, dim, start, start + length), {})


def _softmax(name):
    def made(call, input, dim=None, _stacklevel=3, dtype=None):
        input = input if dtype is None else _to(call, input, dtype)
        return call(name, "default", (input, dim, False), {})

    return made


def _activation(name, count):
    """A function whose last argument says to work in place, which is an op of its own; it has ``count`` other arguments."""

    def made(call, *args, inplace=False, **kwargs):
        inplace = args[count] if len(args) > count else inplace
        return call(name + "_" if inplace else name, "default", args[:count], kwargs)

    return made


#: Functions that PyTorch composes of others, or gives other arguments.
_COMPOSED = {
    "matmul": _matmul, "linear": _linear, "square": lambda call, input: call("pow", "Tensor_Scalar", (input, 2), {}), "view": _view, "reshape": _view, "flatten": _flatten, "to": _to, "contiguous": _contiguous, "split": _split,
    "chunk": _chunk, "getitem": _getitem, "setitem": _setitem, "narrow": _narrow,
    "rpow": lambda call, input, other: call("pow", "Scalar", (other, input), {}),
    "expand": _sizes("expand"), "permute": _sizes("permute"), "repeat": _sizes("repeat"),
    "sum": lambda call, *args, **kwargs: _sum(call, "sum", *args, **kwargs), "mean": lambda call, *args, **kwargs: _sum(call, "mean", *args, **kwargs),
    "softmax": _softmax("_softmax"), "log_softmax": _softmax("_log_softmax"), "data": lambda call, input, *rest: call("detach", "default", (input,), {}),
    **{name: _activation(name, 1) for name in ("relu", "relu6", "selu", "silu", "mish", "hardswish", "hardsigmoid")},
    **{name: _activation(name, 2) for name in ("celu", "elu", "leaky_relu")},
    **{name: _activation(name, 3) for name in ("hardtanh", "threshold")},
    "T": lambda call, input: call("permute", "default", (input, list(range(input.dim()))[::-1]), {}),
    "mT": lambda call, input: call("transpose", "int", (input, -2, -1), {}),
    **_dispatch_layers.COMPOSED,
}
#: Methods that convert to a dtype.
_CONVERSIONS = {
    "float": _C.float32, "double": _C.float64, "half": _C.float16, "bfloat16": _C.bfloat16, "long": _C.int64, "int": _C.int32, "short": _C.int16, "char": _C.int8,
    "byte": _C.uint8, "bool": _C.bool,
}
#: Ops whose results carry no gradient.
_WITHOUT_GRADIENT = frozenset("_local_scalar_dense isclose isnan isinf isfinite argmax argmin sign round floor ceil detach zeros_like ones_like empty_like full_like rand_like randn_like new_zeros new_ones new_empty eq ne lt le gt ge".split())


@functools.lru_cache(None)
def _packet(name, function):
    return OpOverloadPacket("aten", name, function)


def as_aten(function, args, kwargs, handle):
    """Calls ``handle(op, args, kwargs)`` with the ops of ``aten`` that a call of a function of ``torch`` is made of. Returns the last result."""
    name = name_of(function)

    def call(op, overload, args, kwargs):
        return handle(getattr(getattr(ops.aten, op), overload), tuple(args), kwargs)

    method = getattr(function, "__name__", "")
    if method in _CONVERSIONS:
        return _to(call, args[0], _CONVERSIONS[method])
    composed = _dispatch_layers.READS.get(method) or _COMPOSED.get(name)
    if composed is not None:
        return composed(call, *args, **kwargs)
    if known(name):
        return call(name, _overload(name, args, kwargs), args, kwargs)
    # A function of torch that aten has not, or has with other arguments.
    return handle(_packet(name, function).default, tuple(args), kwargs)


def _dispatching(args):
    """Arguments whose classes handle ops, also in lists and tuples; subclasses first, one per class."""
    found = []
    for arg in args:
        for item in arg if type(arg) in (list, tuple) else (arg,):
            kind = type(item)
            if _C._dispatches(item) and not any(type(known) is kind for known in found):
                at = next((i for i, known in enumerate(found) if issubclass(kind, type(known))), len(found))
                found.insert(at, item)
    return found


def _requires_grad(values):
    return any(isinstance(i, Tensor) and i.requires_grad for v in values for i in (v if type(v) in (list, tuple) else (v,)))


def _by_class(op, args, kwargs, always=False):
    found = _dispatching([*args, *kwargs.values()])
    if not found:
        if always and _C.is_grad_enabled() and _requires_grad([*args, *kwargs.values()]):
            from ._dispatch_grad import record

            return record(op, args, kwargs, lambda: op(*args, **kwargs))
        return op(*args, **kwargs)
    kinds = tuple(type(item) for item in found)
    name = op.overloadpacket.__name__

    def run():
        for item in found:
            result = type(item).__torch_dispatch__(op, kinds, args, kwargs)
            if result is not NotImplemented:
                return result
        raise TypeError(
            f"Multiple dispatch failed for '{op}'; all __torch_dispatch__ handlers returned NotImplemented: {[kind.__name__ for kind in kinds]}"
        )

    if _C.is_grad_enabled() and name not in _WITHOUT_GRADIENT and _requires_grad([*args, *kwargs.values()]):
        from ._dispatch_grad import record

        return record(op, args, kwargs, run)
    return run()


#: The op that reads the only element of a tensor.
ops.aten._local_scalar_dense = OpOverloadPacket("aten", "_local_scalar_dense", lambda input: input.item())


def item(tensor):
    """The only element of a tensor whose class handles its ops."""
    return _by_class(ops.aten._local_scalar_dense.default, (tensor,), {})


#: Functions that look at sizes and strides only, which a wrapper has itself.
_METADATA = frozenset("result_type dim_order element_size is_complex is_conj is_contiguous is_floating_point is_neg is_same_size is_signed numel size stride".split())


def handle(function, args, kwargs):
    """The result of the classes of the arguments for a call of a function of ``torch``."""
    if name_of(function) in _METADATA:
        with disabled():
            return function(*args, **kwargs)
    # Parts of a composed function that see plain tensors only get gradients of the class, too.
    return as_aten(function, args, kwargs, lambda op, args, kwargs: _by_class(op, args, kwargs, True))


class disabled:
    """A context in which no class handles ops: ``torch._C._DisableTorchDispatch``."""

    def __enter__(self):
        self._before = _C._set_dispatch_enabled(False)
        return self

    def __exit__(self, *exception):
        _C._set_dispatch_enabled(self._before)


def _disabled_torch_dispatch_impl(func, types, args=(), kwargs=None):
    """``__torch_dispatch__`` of classes that handle no ops: computes."""
    with disabled():
        return func(*args, **(kwargs or {}))
