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


def _function(name):
    """The function of ``torch`` that an op of ``aten`` is."""
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
    return getattr(ops.aten, getattr(function, "__name__", "unknown").strip("_") or "unknown")
