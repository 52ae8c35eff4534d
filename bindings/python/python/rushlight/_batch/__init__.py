"""Batching for ``torch.func.vmap``: tensors with a hidden first dimension, and the mode that gives every function its rule.

Inside ``vmap`` the function gets ``Batched`` tensors. A mode (``Level``) sees every call: it finds the rule of the function by name (``_rules``, ``_layers``),
which calls it once for the whole batch. Functions written in Python run as they are. A function without a rule runs once for each element of the batch.
Nested levels follow from nested modes: a rule of the inner level calls functions on tensors of the outer one.
"""

import functools

from .. import _C
from ..overrides import DisableTorchFunction, TorchFunctionMode, _modes

Tensor = _C.Tensor
_torch = _C._torch

_READING = (
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, please try to rewrite what you're doing "
    "with other operations. If error is occurring somewhere inside PyTorch internals, please file a bug report."
)
_BRANCHING = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that yet, please shout over at "
    "https://github.com/pytorch/functorch/issues/257 ."
)
_NO_RULE = (
    "Batching rule not implemented for aten::{}; the fallback path doesn't work on out= or view ops. Use the function's result, or functions that return tensors"
)
_SHAPES = "vmap: It looks like you attempted to use an operator that produces dynamic shapes ({}); it has no batched form, use where or masked_fill"


class _Plain(DisableTorchFunction):
    """A context in which neither modes nor classes see calls."""

    def __enter__(self):
        super().__enter__()
        self._dispatch = _C._set_dispatch_enabled(False)

    def __exit__(self, *exception):
        _C._set_dispatch_enabled(self._dispatch)
        super().__exit__(*exception)


class Batched(Tensor):
    """A tensor of one element of a batch: ``_value`` holds all of them along its first dimension."""

    @staticmethod
    def __new__(cls, value, level):
        before, dispatch = _C._set_function_level(0), _C._set_dispatch_enabled(False)
        try:
            shape = tuple(value.shape)
            made = _wrapper(list(shape[1:]), dtype=value.dtype, device=value.device)
        finally:
            _C._set_dispatch_enabled(dispatch)
            _C._set_function_level(before)
        # The number of dimensions of an element.
        made._value, made._level, made._rank = value, level, len(shape) - 1
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"vmap: {getattr(func, '__name__', func)}: a tensor was used outside of the vmap that made it; return it from the function instead")

    @staticmethod
    def __torch_dispatch__(func, types, args=(), kwargs=None):
        raise RuntimeError(f"vmap: {func}: a tensor was used outside of the vmap that made it; return it from the function instead")

    @property
    def requires_grad(self):
        return self._value.requires_grad

    @requires_grad.setter
    def requires_grad(self, value):
        self._value.requires_grad_(value)

    def requires_grad_(self, requires_grad=True):
        self._value.requires_grad_(requires_grad)
        return self

    @property
    def grad_fn(self):
        return self._value.grad_fn

    @property
    def is_leaf(self):
        return self._value.is_leaf

    @property
    def grad(self):
        return None

    @property
    def data(self):
        raise RuntimeError("accessing `data` under vmap transform is not allowed; use .detach()")

    @data.setter
    def data(self, value):
        raise RuntimeError("mutating directly with `.data` under vmap transform is not allowed; use .copy_()")

    def stride(self, dim=None):
        stride = tuple(physical(self)[0])
        return stride if dim is None else stride[dim]

    def new_empty_strided(self, size, stride, **kwargs):
        from ._indices import new_empty_strided

        return new_empty_strided(self._level, self, size, stride, **kwargs)

    def backward(self, *args, **kwargs):
        raise RuntimeError("vmap: backward() inside of vmap is not supported; use torch.func.grad, or call backward on the result of vmap")

    def __repr__(self, **kwargs):
        return f"BatchedTensor(lvl={self._level.number}, bdim=0, value=\n{self._value!r}\n)"

    __str__ = __repr__


_wrapper = vars(Tensor)["_make_wrapper_subclass"].__func__.compiled.__get__(None, Batched)


def made_shape(value):
    """The sizes of a tensor, without asking modes."""
    before, dispatch = _C._set_function_level(0), _C._set_dispatch_enabled(False)
    try:
        return tuple(value.shape)
    finally:
        _C._set_dispatch_enabled(dispatch)
        _C._set_function_level(before)


def physical(tensor):
    """The strides of an element of a batch in memory, those of the innermost batch first, and the offset."""
    depth = 0
    while type(tensor) is Batched:
        tensor, depth = tensor._value, depth + 1
    with _Plain():
        return tensor.stride()[depth:], tensor.storage_offset()


def _is_contiguous(tensor, memory_format=_C.contiguous_format):
    """Whether an element of a batch is contiguous."""
    if memory_format != _C.contiguous_format:
        raise RuntimeError("NYI: querying is_contiguous inside of vmap for memory_format other than torch.contiguous_format")
    step = 1
    for size, stride in zip(reversed(made_shape(tensor)), reversed(physical(tensor)[0])):
        if size != 1 and stride != step:
            return 0 in made_shape(tensor)
        step *= size
    return True


def levels():
    """The levels of this thread, the outermost first."""
    return [mode for mode in _modes.stack if isinstance(mode, Level)]


def level_of(value):
    """The innermost level of which a value has a tensor, or None."""
    return next((level for level in reversed(levels()) if level.mentions(value)), None)


def lift(tensor, stack=None):
    """A tensor that is batched at every level: derivatives by it differ between elements of the batch."""
    stack = levels() if stack is None else stack
    if not stack:
        return tensor
    *outer, top = stack
    if top.has(tensor):
        inner = lift(tensor._value, outer)
        return tensor if inner is tensor._value else Batched(inner, top)
    return Batched(top.expanded(lift(tensor, outer)), top)


#: Questions about sizes and types, which the tensor answers itself.
METADATA = frozenset(
    "shape dtype device ndim size dim ndimension numel nelement stride is_contiguous is_floating_point is_complex is_signed element_size itemsize nbytes is_cuda is_cpu is_meta is_xpu "
    "is_sparse is_quantized layout __len__ storage_offset get_device is_tensor is_inference is_conj is_neg dim_order is_same_size names result_type can_cast".split()
)
_NAMES = {
    "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub", "swapaxes": "transpose", "swapdims": "transpose", "concat": "cat",
    "concatenate": "cat", "moveaxis": "movedim", "row_stack": "vstack", "arctan2": "atan2", "ger": "outer", "inverse": "inv", "clip": "clamp", "clip_": "clamp_",
    "ndimension": "dim", "conv_tbc": "conv_tbc", "negative": "neg", "absolute": "abs", "rsub": "rsub",
}
_READS = frozenset("item tolist numpy __float__ __int__ __index__ __complex__ __array__ __format__ data_ptr __contains__ is_nonzero equal allclose".split())
_DYNAMIC = frozenset("nonzero masked_select unique unique_consecutive argwhere bincount".split())


@functools.lru_cache(2048)
def name_of(func):
    """The name of a rule for a function: without dunders, with the namespace where names collide."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return getattr(getattr(func, "__self__", None), "__name__", name)
    if name in ("__getitem__", "__setitem__", "__len__", "__float__", "__int__", "__index__", "__bool__", "__complex__", "__contains__", "__array__", "__format__"):
        return name
    if name == "__rand__":
        # Not the function of random numbers.
        return "bitwise_and"
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
    name = _NAMES[name[:-1]] + "_" if name.endswith("_") and name[:-1] in _NAMES else _NAMES.get(name, name)
    home = getattr(func, "__module__", None) or ""
    if home.endswith("masked._ops"):
        return f"masked.{name}"
    if "linalg" in home:
        return f"linalg.{name}"
    if name in ("unfold", "fold") and ("functional" in home or "_nn" in home):
        return f"F.{name}"
    return name


_INPLACE = (
    "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has more elements than `self`: "
    "`self` is not batched, and the result does not fit it. Use the operator that makes a new tensor instead of {}"
)
_OPERATORS = frozenset(f"__i{name}__" for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split())


def _is_in_place(func):
    name = getattr(func, "__name__", "")
    return name in _OPERATORS or name.endswith("_") and not name.endswith("__")


#: The tables of ``_rules`` and ``_random``, which need this module first.
RULES = RANDOM = CREATED = randomly = None


def _load():
    global RULES, RANDOM, CREATED, randomly
    from ._random import CREATED, RANDOM, randomly
    from ._rules import RULES


class Level(TorchFunctionMode):
    """One call of ``vmap``: its size, its randomness, and the rules."""

    def __init__(self, size, randomness):
        self.size, self.randomness = size, randomness
        self.number = len(levels()) + 1

    # Tensors of this level.

    def has(self, value):
        return type(value) is Batched and value._level is self

    def mentions(self, value):
        """Whether a value, or one in it, is batched at this level."""
        if isinstance(value, Tensor):
            return self.has(value)
        if isinstance(value, (list, tuple)):
            return any(self.mentions(item) for item in value)
        if isinstance(value, dict):
            return any(self.mentions(item) for item in value.values())
        return False

    def expanded(self, tensor):
        """A tensor repeated for each element of the batch, without a copy."""
        return tensor.unsqueeze(0).expand(self.size, *made_shape(tensor))

    def value(self, tensor):
        """The values of a tensor for the whole batch, along the first dimension."""
        return tensor._value if self.has(tensor) else self.expanded(tensor)

    def aligned(self, tensor, rank):
        """The values of a batched tensor with as many dimensions as the others; any other argument as it is."""
        if not self.has(tensor):
            return tensor
        missing = rank - tensor._rank
        value = tensor._value
        return value.reshape(self.size, *[1] * missing, *made_shape(value)[1:]) if missing > 0 else value

    def wrap(self, result):
        """Results with the batch hidden again."""
        return self.map(lambda t: Batched(t, self), result)

    def map(self, function, value):
        if isinstance(value, Tensor):
            return function(value)
        if isinstance(value, (list, tuple)):
            made = [self.map(function, item) for item in value]
            return type(value)(*made) if hasattr(value, "_fields") and not type(value).__module__.endswith("return_types") else type(value)(made)
        if isinstance(value, dict):
            return {key: self.map(function, item) for key, item in value.items()}
        return value

    # Calls.

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if RULES is None:
            _load()
        kwargs = kwargs or {}
        name = name_of(func)
        if name in METADATA:
            if name == "is_contiguous" and type(args[0]) is Batched:
                return _is_contiguous(*args, **kwargs)
            with _Plain():
                return func(*args, **kwargs)
        if name in RANDOM or name in CREATED:
            return randomly(self, name, func, args, kwargs)
        if not self.mentions(args) and not self.mentions(kwargs):
            return func(*args, **kwargs)
        if kwargs.get("out") is not None:
            raise RuntimeError(_NO_RULE.format(f"{name}.out"))
        if name == "__bool__":
            raise RuntimeError(_BRANCHING)
        if name in ("equal", "allclose"):
            raise RuntimeError(_NO_RULE.format(name))
        if name in _READS:
            raise RuntimeError(_READING)
        if name in _DYNAMIC:
            raise RuntimeError(_SHAPES.format(name))
        rule = RULES.get(name)
        if rule is not None:
            return rule(self, func, *args, **kwargs)
        inner = getattr(func, "__wrapped__", None)
        if inner is not None:
            with self:
                return inner(*args, **kwargs)
        return self.loop(func, args, kwargs)

    def loop(self, func, args, kwargs, before=None):
        """Calls a function once for each element of the batch and stacks the results."""
        if _is_in_place(func) and args and isinstance(args[0], Tensor) and not self.has(args[0]):
            raise RuntimeError(_INPLACE.format(func.__name__))
        results = []
        for i in range(max(self.size, 1)):
            if before is not None:
                before(i)

            def one(tensor):
                if not self.has(tensor):
                    return tensor
                return tensor._value.select(0, i) if self.size else tensor._value.new_zeros(made_shape(tensor))

            results.append(func(*self.map(one, args), **self.map(one, kwargs)))
        if _is_in_place(func) and args and self.has(args[0]):
            return args[0]
        return self._stacked(func, results)

    def _stacked(self, func, results):
        first = results[0]
        if isinstance(first, Tensor):
            made = _torch.stack(results)
            return Batched(made if self.size else made.narrow(0, 0, 0), self)
        if isinstance(first, (list, tuple)):
            if any(len(r) != len(first) for r in results):
                raise RuntimeError(_SHAPES.format(getattr(func, "__name__", func)))
            made = [self._stacked(func, [r[k] for r in results]) for k in range(len(first))]
            return type(first)(*made) if hasattr(first, "_fields") and not type(first).__module__.endswith("return_types") else type(first)(made)
        if any(r != first for r in results):
            raise RuntimeError(_BRANCHING)
        return first


def _grad_of(level, outputs, inputs, gradients, function):
    """``function(outputs, inputs, gradients)``, which differentiates and with ``again=True`` keeps the graph, for tensors of a level."""
    if not level.mentions(outputs) and not level.mentions(inputs):
        # The graph is outside of this vmap, only its gradients are batched.
        rows = []
        for i in range(level.size):
            row = [g._value.select(0, i) if level.has(g) else g for g in gradients]
            # The graph may be freed once, by the last row.
            rows.append(function(outputs, inputs, row, again=True) if i + 1 < level.size else function(outputs, inputs, row))
        if not rows:
            return tuple(Batched(level.expanded(_torch.zeros_like(t)), level) for t in inputs)
        return tuple(None if any(p is None for p in parts) else Batched(_torch.stack(list(parts)), level) for parts in zip(*rows))
    if any(not level.has(t) for t in inputs):
        raise RuntimeError(
            "vmap: autograd.grad by a tensor that is not batched, of one that is, has no batched form; use torch.func.grad inside of vmap"
        )
    values, given = [], []
    for output, gradient in zip(outputs, gradients):
        if gradient is None:
            if any(n != 1 for n in made_shape(output)):
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            gradient = _torch.ones_like(level.value(output))
        else:
            gradient = level.value(gradient)
        values.append(level.value(output))
        given.append(gradient)
    found = function(values, [t._value for t in inputs], given)
    return tuple(None if g is None else Batched(g, level) for g in found)


class _Info:
    """What a custom ``vmap`` is told."""

    def __init__(self, level):
        self.batch_size, self.randomness = level.size, level.randomness


def _apply(level, function, args, kwargs):
    """``autograd.Function.apply`` of batched arguments: the class's own ``vmap``, or one call for each element."""
    rule = getattr(function, "vmap", None)
    if rule is None:
        if getattr(function, "generate_vmap_rule", False):
            return level.loop(function.apply, args, kwargs)
        raise RuntimeError(
            f"You tried to vmap over {function.__name__}, but it does not have vmap support. Please override and implement the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )
    if getattr(function, "generate_vmap_rule", False):
        raise RuntimeError(f"You tried to vmap over {function.__name__}, but it has both generate_vmap_rule=True and an overridden vmap staticmethod.")
    return by_rule(level, rule, args, kwargs)


def by_rule(level, rule, args, kwargs):
    """A call by a ``vmap`` that a custom function or op has: it gets tensors with the batch first, and says where its results have it."""

    def dims_of(value):
        return type(value)(map(dims_of, value)) if isinstance(value, (list, tuple)) else 0 if level.has(value) else None

    result, out_dims = rule(_Info(level), dims_of(args), *level.map(lambda t: t._value if level.has(t) else t, args), **kwargs)

    def hidden(value, dim):
        if isinstance(value, (list, tuple)):
            dims = dim if isinstance(dim, (list, tuple)) else [dim] * len(value)
            return type(value)(hidden(v, d) for v, d in zip(value, dims))
        return value if dim is None or not isinstance(value, Tensor) else Batched(value.movedim(dim, 0) if dim else value, level)

    return hidden(result, out_dims)
