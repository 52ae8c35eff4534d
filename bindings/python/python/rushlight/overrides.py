"""``torch.overrides``: functions of ``torch`` overridden by the class of an argument (``__torch_function__``), or by a mode."""

import functools
import threading
import types

from . import _C

__all__ = [
    "TorchFunctionMode", "get_ignored_functions", "get_overridable_functions", "get_testing_overrides", "handle_torch_function", "has_torch_function",
    "is_tensor_like", "is_tensor_method_or_property", "resolve_name", "wrap_torch_function",
]

Tensor = _C.Tensor


class _Modes(threading.local):
    def __init__(self):
        self.stack = []


_modes = _Modes()


def _overriding(args):
    """Arguments whose classes override, also in lists and tuples; subclasses come before their base classes. One per class."""
    found = []
    for arg in args:
        for item in arg if type(arg) in (list, tuple) else (arg,):
            kind = type(item)
            if not _C._answers(item) or any(type(known) is kind for known in found):
                continue
            at = next((i for i, known in enumerate(found) if issubclass(kind, type(known))), len(found))
            found.insert(at, item)
    return found


def _called(function):
    return f"{getattr(function, '__module__', None) or 'torch'}.{getattr(function, '__qualname__', None) or getattr(function, '__name__', function)}"


def _answer(function, args, kwargs):
    """The result of the topmost mode, or of the first argument's class that returns one."""
    overriding = _overriding([*args, *kwargs.values()]) if _C._is_torch_function_enabled() else []
    kinds = tuple(type(arg) for arg in overriding)
    if _modes.stack and not _C._is_torch_function_all_disabled():
        mode = _modes.stack[-1]
        with _without(mode):
            result = mode.__torch_function__(function, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    for arg in overriding:
        result = type(arg).__torch_function__(function, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    if not overriding:
        from ._dispatch import handle

        return handle(function, args, kwargs)
    raise TypeError(
        f"no implementation found for '{_called(function)}' on types that implement __torch_function__: {[kind.__name__ for kind in kinds]}"
    )


class _without:
    """Calls inside a mode's handler go to the modes below it."""

    def __init__(self, mode):
        self._mode = mode

    def __enter__(self):
        self._stack = _modes.stack
        _modes.stack = self._stack[:-1]
        _C._set_function_modes(len(_modes.stack))

    def __exit__(self, *exception):
        _modes.stack = self._stack
        _C._set_function_modes(len(_modes.stack))


class TorchFunctionMode:
    """A context in which every function of ``torch`` called by this thread goes to the mode's ``__torch_function__``."""

    inner: "TorchFunctionMode"

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{type(self).__name__}: define __torch_function__(self, func, types, args=(), kwargs=None)")

    def __enter__(self):
        _modes.stack = [*_modes.stack, self]
        _C._set_function_modes(len(_modes.stack))
        return self

    def __exit__(self, *exception):
        _modes.stack = _modes.stack[:-1]
        _C._set_function_modes(len(_modes.stack))

    @classmethod
    def push(cls, *args, **kwargs):
        """An instance, for use in ``with``."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _get_current_function_mode():
    return _modes.stack[-1] if _modes.stack else None


def _get_current_function_mode_stack():
    return list(_modes.stack)


class _Level:
    """A context that disables some overrides."""

    level: int

    def __enter__(self):
        self._before = _C._set_function_level(0)
        _C._set_function_level(min(self._before, self.level))

    def __exit__(self, *exception):
        _C._set_function_level(self._before)


class DisableTorchFunctionSubclass(_Level):
    """Disables the overrides of argument classes, but not modes."""

    level = 1


class DisableTorchFunction(_Level):
    """Disables all overrides."""

    level = 0


def has_torch_function(relevant_args):
    """Whether a class of the arguments, or a mode, overrides calls."""
    return _C._has_torch_function(tuple(relevant_args))


def has_torch_function_unary(tensor):
    """``has_torch_function`` of one argument."""
    return _C._has_torch_function((tensor,))


def has_torch_function_variadic(*tensors):
    """``has_torch_function`` for separate arguments."""
    return _C._has_torch_function(tensors)


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """The result of a mode, or of a class of the relevant arguments, for a function written in Python."""
    return _answer(public_api, args, kwargs)


def wrap_torch_function(dispatcher):
    """Makes a function overridable by the arguments that ``dispatcher``, of the same signature, returns."""

    def decorate(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            return handle_torch_function(call, relevant, *args, **kwargs) if has_torch_function(relevant) else function(*args, **kwargs)

        return call

    return decorate


def overridable(function, module=None):
    """Makes a function of this package overridable by argument classes and modes, under a module's name."""

    def call(*args, **kwargs):
        if _C._has_torch_function(args) or kwargs and _C._has_torch_function(tuple(kwargs.values())):
            return _answer(call, args, kwargs)
        return function(*args, **kwargs)

    functools.update_wrapper(call, function)
    # So that pickle finds it.
    call.__module__ = module or call.__module__
    return call


def make_overridable(namespace, names):
    """Makes functions of a module overridable, unless the compiled part already does."""
    for name in names:
        function = namespace.get(name)
        if isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__"):
            namespace[name] = overridable(function, namespace["__name__"])


# Results of subclasses.

@functools.lru_cache(None)
def get_default_nowrap_functions():
    """Attributes whose values are not converted to the subclass."""
    return {getattr(Tensor, name).__get__ for name in ("_base", "grad", "_grad") if hasattr(Tensor, name)}


def _convert(value, cls):
    """Converts tensors of a result to instances of a subclass."""
    if cls is Tensor:
        return value
    if isinstance(value, Tensor) and not isinstance(value, cls):
        return value.as_subclass(cls)
    if isinstance(value, (tuple, list)):
        made = [_convert(item, cls) for item in value]
        named = hasattr(value, "_fields") and not type(value).__module__.endswith(".return_types")
        return type(value)(*made) if named else type(value)(made)
    return value


def _torch_function(cls, func, types, args=(), kwargs=None):
    """The default for subclasses of ``Tensor``: computes, and converts results to the subclass."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
        return result if func in get_default_nowrap_functions() else _convert(result, cls)


# Overridable functions.


def is_tensor_like(inp):
    """Whether an object is a tensor or overrides calls like one."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def _namespaces():
    from . import linalg, nn, special
    import rushlight

    return {"torch": rushlight, "torch.nn.functional": nn.functional, "torch.linalg": linalg, "torch.special": special, "torch.Tensor": Tensor}


@functools.lru_cache(None)
def _overridable():
    found = {}
    for path, namespace in _namespaces().items():
        for name in dir(namespace):
            value = getattr(namespace, name, None)
            compiled = isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType)) and name not in ("__new__", "__init_subclass__", "__subclasshook__")
            if compiled and (path == "torch.Tensor" or getattr(value, "__module__", "") and "_C" in value.__module__) or hasattr(value, "__wrapped__"):
                found.setdefault(namespace, []).append((f"{path}.{name}", value))
    return found


def get_overridable_functions():
    """Functions that classes and modes may override, by namespace."""
    return {namespace: [value for _, value in listed] for namespace, listed in _overridable().items()}


def get_testing_overrides():
    """A dummy of the same name for each overridable function, with any arguments."""
    return {value: lambda *args, **kwargs: -1 for listed in _overridable().values() for _, value in listed}


def get_ignored_functions():
    """Functions that are never overridden."""
    import rushlight

    return {rushlight.is_tensor, rushlight.typename, rushlight.set_default_dtype, rushlight.manual_seed}


def resolve_name(f):
    """The full name of an overridable function, or None."""
    for listed in _overridable().values():
        for name, value in listed:
            if value is f:
                return name
    return None


def is_tensor_method_or_property(func):
    """Whether a function given to ``__torch_function__`` is a method or an attribute of ``Tensor``."""
    name = getattr(func, "__name__", "")
    return name == "__get__" or getattr(Tensor, name, None) is func
