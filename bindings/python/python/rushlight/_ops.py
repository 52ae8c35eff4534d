"""``torch.ops``: ops by namespace and name. ``torch.ops.aten`` has the functions of ``torch``; other namespaces are filled by ``torch.library``."""

import functools

from . import _C
from ._absent import absent_function

__all__ = ["OpOverload", "OpOverloadPacket", "ops"]


class OpOverload:
    """One overload of an op. All overloads of an op are one function here, which dispatches on its arguments."""

    def __init__(self, packet, name):
        self._overloadpacket, self._overloadname = packet, name

    def __call__(self, *args, **kwargs):
        return self._overloadpacket(*args, **kwargs)

    @property
    def __name__(self):
        return f"{self._overloadpacket.__name__}.{self._overloadname}"

    @property
    def namespace(self):
        return self._overloadpacket._namespace

    overloadpacket = property(lambda self: self._overloadpacket)

    def name(self):
        suffix = "" if self._overloadname == "default" else f".{self._overloadname}"
        return f"{self._overloadpacket._qualified_op_name}{suffix}"

    def __repr__(self):
        return f"<OpOverload(op='{self.namespace}.{self._overloadpacket.__name__}', overload='{self._overloadname}')>"

    def __str__(self):
        return f"{self._overloadpacket}.{self._overloadname}"


class OpOverloadPacket:
    """An op. ``op.default`` and the like are its overloads."""

    def __init__(self, namespace, name, function):
        self._namespace, self.__name__, self._op = namespace, name, function
        self._qualified_op_name = f"{namespace}::{name}"
        self._forms = {}

    def __call__(self, *args, **kwargs):
        return self._op(*args, **kwargs)

    def __getattr__(self, name):
        if name.startswith("__") or name == "_forms":
            raise AttributeError(name)
        return self._forms.setdefault(name, OpOverload(self, name))

    def overloads(self):
        return ["default"]

    def __repr__(self):
        return f"<OpOverloadPacket(op='{self._namespace}.{self.__name__}')>"

    def __str__(self):
        return f"{self._namespace}.{self.__name__}"


def _slice(input, dim=0, start=None, end=None, step=1):
    return input[(slice(None),) * (dim % max(input.dim(), 1)) + (slice(start, end, step),)]


def _index(input, indices):
    return input[tuple(slice(None) if i is None else i for i in indices)]


def _to_copy(input, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    made = input.to(device if device is not None else input.device, dtype or input.dtype, non_blocking=non_blocking, copy=True)
    return made if memory_format is None else made.contiguous(memory_format=memory_format)


def _softmax(name):
    return lambda input, dim, half_to_float: getattr(_C._nn, name)(input, dim)


def _convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    kind = f"conv{'_transpose' if transposed else ''}{weight.dim() - 2}d"
    further = (output_padding, groups, dilation) if transposed else (dilation, groups)
    return getattr(_C._nn, kind)(input, weight, bias, stride, padding, *further)


#: Ops of ``aten`` that ``torch`` does not have as functions.
_ATEN = {
    "slice": _slice, "index": _index, "_to_copy": _to_copy, "_unsafe_view": lambda input, size: input.reshape(size), "alias": lambda input: input[...],
    "lift_fresh": lambda input: input, "_softmax": _softmax("softmax"), "_log_softmax": _softmax("log_softmax"), "convolution": _convolution,
    "sym_size": lambda input, dim=None: input.shape if dim is None else input.shape[dim],
}


def _function(name):
    """The function of ``torch`` that an op of ``aten`` is."""
    if name in _ATEN:
        return _ATEN[name]
    for space in (_C._torch, _C._nn, _C._linalg, _C._special):
        if hasattr(space, name):
            return getattr(space, name)
    return getattr(_C.Tensor, name, None)


class _Namespace:
    """Ops of one namespace."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if self._name not in ("aten", "prims"):
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")
        # Internal ops of PyTorch exist as names, for use as keys of tables; they cannot be called.
        function = _function(name) or absent_function(f"torch.ops.{self._name}.{name}", "ops are the functions of torch")
        made = OpOverloadPacket(self._name, name, function)
        setattr(self, name, made)
        return made

    def __repr__(self):
        return f"<torch.ops.{self._name}>"


class _Ops:
    """``torch.ops`` itself."""

    __name__ = "torch.ops"

    def __init__(self):
        self.loaded_libraries = set()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Namespace(name)
        setattr(self, name, made)
        return made

    def load_library(self, path):
        raise NotImplementedError(f"torch.ops.load_library: {path} is linked to PyTorch's own libraries; write the op with torch.library.custom_op")

    def import_module(self, module):
        import importlib

        importlib.import_module(module)


ops = _Ops()


@functools.lru_cache(None)
def packet(function):
    """The op of ``aten`` that a function of ``torch`` is."""
    from ._dispatch import name_of

    return getattr(ops.aten, name_of(function))
