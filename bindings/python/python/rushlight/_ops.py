"""``torch.ops``: ops by namespace and name. ``torch.ops.aten`` has the functions of ``torch``; other namespaces are filled by ``torch.library``."""

import functools

from ._absent import absent_function
from .overrides import _modes, _without

__all__ = ["FunctionSchema", "OpOverload", "OpOverloadPacket", "ops", "parse_schema"]

#: Names of results among the keyword arguments of ``op.out``.
_RESULTS = frozenset("out0 out1 out2 values indices max max_values min eigenvalues eigenvectors U S Vh Q R L LU LD P pivots info inverse sign logabsdet result X".split())

#: Overloads other than ``out`` that write into tensors given by keyword.
_WRITING = frozenset("dim_max dim_min values dim_values values_stable e U X L n_min grid".split())


def known(name):
    """Whether an op of ``aten`` can be called by its name."""
    from ._aten import find

    return find(name) is not None


class FunctionSchema:
    """What an op takes, as text; of ops of ``aten`` here, only the name."""

    def __init__(self, text):
        self._text = text
        name, _, self.overload_name = text.partition("(")[0].partition(".")
        self.name = name.strip()

    def is_backward_compatible_with(self, old):
        """Whether calls of the old form still work: known only of the same text."""
        return str(self) == str(old)

    def __str__(self):
        return self._text

    __repr__ = __str__

    def __eq__(self, other):
        return isinstance(other, FunctionSchema) and self._text == other._text

    def __hash__(self):
        return hash(self._text)


def parse_schema(schema):
    """A schema from its text."""
    if "(" not in schema or "->" not in schema:
        raise RuntimeError(f"schema {schema!r}: expected name(arguments) -> results")
    return FunctionSchema(schema)


class OpOverload:
    """One overload of an op. All overloads of an op are one function here, which dispatches on its arguments."""

    def __init__(self, packet, name):
        self._overloadpacket, self._overloadname = packet, name

    def __call__(self, *args, **kwargs):
        if _modes.stack and getattr(_modes.stack[-1], "_handles_ops", False):
            mode = _modes.stack[-1]
            with _without(mode):
                return mode._handle(self, (), args, kwargs)
        if "out" not in kwargs and not self._overloadname.endswith("out") and self._overloadname not in _WRITING:
            return self._overloadpacket(*args, **kwargs)
        # Results go to the tensors of the keyword arguments that the schema names as such.
        names = [name for name in kwargs if name == "out" or name in _RESULTS]
        made = self._overloadpacket(*args, **{name: value for name, value in kwargs.items() if name not in names})
        outs = [kwargs[name] for name in names]
        outs = list(outs[0]) if len(outs) == 1 and isinstance(outs[0], (tuple, list)) else outs
        for out, part in zip(outs, made if isinstance(made, (tuple, list)) else (made,)):
            if out.shape != part.shape:
                out.resize_(part.shape)
            out.copy_(part)
        return outs[0] if len(outs) == 1 else tuple(outs)

    @property
    def __name__(self):
        return f"{self._overloadpacket.__name__}.{self._overloadname}"

    @property
    def namespace(self):
        return self._overloadpacket._namespace

    overloadpacket = property(lambda self: self._overloadpacket)
    #: The name only: arguments are those of the function of ``torch``.
    _schema = property(lambda self: FunctionSchema(self.name()))

    def __deepcopy__(self, memo):
        return self

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

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        return f"<OpOverloadPacket(op='{self._namespace}.{self.__name__}')>"

    def __str__(self):
        return f"{self._namespace}.{self.__name__}"


def _enter(name, args=None):
    """Begins a named part of the program; returns what ends it."""
    from .profiler import record_function

    return record_function(name, args).__enter__()


def _exit(record):
    record.__exit__(None, None, None)


_PROFILER = {
    name: OpOverloadPacket("profiler", name, function)
    for name, function in (("_record_function_enter", _enter), ("_record_function_enter_new", _enter), ("_record_function_exit", _exit))
}


class _Namespace:
    """Ops of one namespace."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if self._name == "profiler" and name in _PROFILER:
            return _PROFILER[name]
        if self._name == "symm_mem":
            from .distributed._symmetric_memory import _OPS

            if name in _OPS:
                setattr(self, name, OpOverloadPacket("symm_mem", name, _OPS[name]))
                return self.__dict__[name]
        if self._name not in ("aten", "prims", "c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "torch_attn"):
            from ._library_ops import find

            made = find(self._name, name)
            if made is not None:
                setattr(self, name, made)
                return made
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")
        # Internal ops of PyTorch exist as names, for use as keys of tables; they cannot be called.
        from ._aten import find

        function = find(name) or absent_function(f"torch.ops.{self._name}.{name}", "ops are the functions of torch")
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
        """Loads a library whose ``TORCH_LIBRARY`` registers ops."""
        import ctypes
        import os

        path = os.path.realpath(os.fspath(path))
        try:
            ctypes.CDLL(path)
        except OSError as error:
            raise OSError(f"Could not load this library: {path} ({error}); it must be built against Rushlight's headers: torch.utils.cpp_extension.load, or CMake with torch.utils.cmake_prefix_path") from error
        self.loaded_libraries.add(path)

    def import_module(self, module):
        import importlib

        importlib.import_module(module)


ops = _Ops()


@functools.lru_cache(None)
def packet(function):
    """The op of ``aten`` that a function of ``torch`` is."""
    from ._dispatch import name_of

    return getattr(ops.aten, name_of(function))
