"""Ops that libraries in C++ have registered by ``TORCH_LIBRARY``: ``torch.ops.namespace.name`` calls them."""

from . import _C
from ._ops import OpOverload, OpOverloadPacket
from .library import CustomOpDef


class _Overload(OpOverload):
    """One schema of an op."""

    def __call__(self, *args, **kwargs):
        return self._overloadpacket._op._run(self.name(), args, kwargs)

    @property
    def _schema(self):
        return _C._library_schema(self.name())


class _Packet(OpOverloadPacket):
    """An op with its overloads."""

    def __getattr__(self, name):
        if name.startswith("__") or name == "_forms":
            raise AttributeError(name)
        if name not in self._forms:
            if name not in self.overloads():
                raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")
            self._forms[name] = _Overload(self, name)
        return self._forms[name]

    def overloads(self):
        return [_overload(schema) or "default" for schema in schemas(self._qualified_op_name)]


def _overload(schema):
    return schema.partition("(")[0].strip().partition(".")[2]


def schemas(qualified):
    """The schemas of all overloads of an op."""
    return [schema for schema in _C._library_schemas() if schema.partition("(")[0].strip().partition(".")[0] == qualified]


class LibraryOp(CustomOpDef):
    """An op whose kernels are in C++. Python may give it a derivative and shapes for meta tensors."""

    def __init__(self, namespace, name):
        super().__init__(f"{namespace}::{name}")
        #: The op's name in exported programs.
        self._program_name = f"ops.{namespace}.{name}"
        self.__name__ = name
        self._packet = _Packet(namespace, name, self)
        self._opoverload = next((getattr(self._packet, overload) for overload in self._packet.overloads()), self._opoverload)

    def _kernel(self, args):
        if self._kernels or (self._fake is not None and any(t.device.type == "meta" for t in args if isinstance(t, _C.Tensor))):
            return super()._kernel(args)
        return self._call

    def _run(self, overload, args, kwargs):
        """Calls one overload."""
        return _C._library_call(overload, args, kwargs)

    def _call(self, *args, **kwargs):
        overloads = [schema.partition("(")[0].strip() for schema in schemas(self._qualname)]
        for overload in overloads[:-1]:
            try:
                return self._run(overload, args, kwargs)
            except RuntimeError as error:
                # Arguments that do not fit this schema may fit another.
                if "Declaration: " not in str(error):
                    raise
        return self._run(overloads[-1], args, kwargs)

    def __call__(self, *args, **kwargs):
        if _C._has_torch_function(args) or kwargs and _C._has_torch_function(tuple(kwargs.values())):
            from .overrides import _answer

            return _answer(self, args, kwargs)
        if self._backward is not None:
            return super().__call__(*args, **kwargs)
        return self._kernel((*args, *kwargs.values()))(*args, **kwargs)


def find(namespace, name):
    """The packet of a registered op; None if there is none."""
    if not schemas(f"{namespace}::{name}"):
        return None
    return LibraryOp(namespace, name)._packet
