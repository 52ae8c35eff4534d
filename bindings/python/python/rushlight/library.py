"""``torch.library``: custom ops, with kernels per device, shapes for meta tensors and derivatives."""

import functools
import inspect

from . import _batch, _C
from ._ops import OpOverloadPacket, ops
from .overrides import _modes

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "get_kernel", "impl", "impl_abstract", "infer_schema", "register_autocast",
    "register_autograd", "register_fake", "register_kernel", "register_torch_dispatch", "register_vmap", "triton_op", "wrap_triton",
]

Tensor = _C.Tensor

_defined = {}
#: Implementations of ops that are not defined yet.
_waiting = {}


def _tensors(values):
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


class CustomOpDef:
    """An op: ``torch.ops.namespace.name``, and this object, with the same call."""

    def __init__(self, qualified, function=None, signature=None, mutates_args=()):
        namespace, _, name = qualified.partition("::")
        if not name or not namespace:
            raise ValueError(f"Expected `name` to be of the form namespace::name, got {qualified!r}")
        self._namespace, self._name, self._qualname = namespace, name, qualified
        self._signature, self._mutates = signature, mutates_args
        self._kernels, self._fake, self._backward, self._setup, self._vmap = {}, None, None, None, None
        # Whether its derivative is that of the functions that it calls.
        self._composite = False
        if function is not None:
            self._kernels[None] = function
            functools.update_wrapper(self, function)
        self._opoverload = OpOverloadPacket(namespace, name, self).default
        _defined[qualified] = self
        setattr(getattr(ops, namespace), name, self._opoverload._overloadpacket)
        for device, waiting in _waiting.pop(qualified, ()):
            _implement(qualified, device, waiting)

    def __repr__(self):
        return f"<CustomOpDef({self._qualname})>"

    # Registrations; each is also a decorator.

    def register_kernel(self, device_types, func=None, /):
        """Another implementation for tensors of some devices; ``"default"`` is that of devices without one of their own."""

        def register(function):
            for device in [device_types] if device_types is None or isinstance(device_types, str) else device_types:
                self._kernels[device] = function
            return function

        return register if func is None else register(func)

    def register_fake(self, fn, /):
        """The shapes of results, from tensors of the meta device."""
        self._fake = fn
        return fn

    def register_autograd(self, backward, /, *, setup_context=None):
        """The derivative: ``backward(ctx, *gradients)`` gives one gradient per input; ``setup_context(ctx, inputs, output)`` saves values for it."""
        self._backward, self._setup = backward, setup_context
        self.__dict__.pop("_function", None)

    def register_vmap(self, func=None, /):
        """The op for a batch: ``func(info, in_dims, *args)`` gives results and their dimensions of the batch. Without one it runs for each element."""

        def register(function):
            self._vmap = function
            return function

        return register if func is None else register(func)

    register_torch_dispatch = register_autocast = lambda self, *args, **kwargs: (lambda function: function)  # noqa: E731

    # Calls.

    def _kernel(self, args):
        devices = {t.device.type for t in _tensors(args)}
        if "meta" in devices:
            if self._fake is None:
                raise NotImplementedError(f"{self._qualname}: no fake implementation is registered for meta tensors; use register_fake")
            return self._fake
        for device in devices:
            if device in self._kernels:
                return self._kernels[device]
        for others in (None, "default"):
            if others in self._kernels:
                return self._kernels[others]
        if not devices and len(self._kernels) == 1:
            return next(iter(self._kernels.values()))
        raise NotImplementedError(f"{self._qualname}: no implementation is registered for {sorted(devices) or 'calls without tensors'}")

    def _bound(self, args, kwargs):
        if self._signature is None:
            return tuple(args), dict(kwargs)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    @functools.cached_property
    def _function(self):
        from .autograd import Function

        definition = self

        def forward(ctx, kwargs, *args):
            output = definition._kernel((*args, *kwargs.values()))(*args, **kwargs)
            if definition._setup is not None:
                if kwargs:
                    definition._setup(ctx, args, kwargs, output)
                else:
                    definition._setup(ctx, args, output)
            return output

        def backward(ctx, *gradients):
            if definition._backward is None:
                raise RuntimeError(
                    f"Trying to backward through {definition._qualname} but no autograd formula was registered. Please use register_autograd to add one."
                )
            found = definition._backward(ctx, *gradients)
            return (None, *(found if isinstance(found, (tuple, list)) else (found,)))

        made = type(self._name, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})
        return made

    def __call__(self, *args, **kwargs):
        args, kwargs = self._bound(args, kwargs)
        everything = (*args, *kwargs.values())
        level = _batch.level_of(everything) if _modes.stack else None
        if level is not None:
            return level.loop(self, args, kwargs) if self._vmap is None else _batch.by_rule(level, self._vmap, args, kwargs)
        if self._composite and self._backward is None:
            return self._kernel(everything)(*args, **kwargs)
        if _C.is_grad_enabled() and any(t.requires_grad for t in _tensors(everything)):
            return self._function.apply(kwargs, *args)
        return self._kernel(everything)(*args, **kwargs)


def custom_op(name, fn=None, /, *, mutates_args=(), device_types=None, schema=None, tags=None):
    """Makes a function an op of a namespace. A decorator, if no function is given."""

    def make(function):
        made = CustomOpDef(name, None, inspect.signature(function), mutates_args)
        functools.update_wrapper(made, function)
        made.register_kernel(device_types, function)
        return made

    return make if fn is None else make(fn)


def triton_op(name, fn=None, /, *, mutates_args, schema=None):
    """Makes a function that may launch Triton's kernels an op. Unless it has a derivative of its own, that of the functions it calls is used."""

    def make(function):
        made = custom_op(name, function, mutates_args=mutates_args, schema=schema)
        made._composite = True
        return made

    return make if fn is None else make(fn)


def wrap_triton(triton_kernel, /):
    """Returns the kernel: calls are not recorded for a compiler."""
    return triton_kernel


def _known(op):
    if isinstance(op, CustomOpDef):
        return op
    name = op if isinstance(op, str) else op._overloadpacket._qualified_op_name if hasattr(op, "_overloadpacket") else op._qualified_op_name
    name = name.partition(".")[0]
    if name not in _defined:
        raise RuntimeError(f"torch.library: there is no op {name}; define it first")
    return _defined[name]


def register_kernel(op, device_types, func=None, /, *, lib=None):
    """Another implementation of an op for tensors of some devices."""
    return _known(op).register_kernel(device_types, func)


def register_fake(op, func=None, /, *, lib=None, _stacklevel=1, allow_override=False):
    """The shapes of an op's results, from tensors of the meta device."""
    return _known(op).register_fake if func is None else _known(op).register_fake(func)


impl_abstract = register_fake


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    """An op's derivative."""
    _known(op).register_autograd(backward, setup_context=setup_context)


def register_vmap(op, func=None, /, *, lib=None):
    """The op for a batch; see ``CustomOpDef.register_vmap``."""
    return _known(op).register_vmap(func)


def register_autocast(op, device_type, cast_inputs, /, *, lib=None):
    """Not supported: custom ops receive their tensors unchanged."""
    raise NotImplementedError("torch.library.register_autocast: convert the inputs in the op itself")


def register_torch_dispatch(op, torch_dispatch_class, func=None, /, *, lib=None):
    """Not supported: dispatch modes see functions of ``torch``, not custom ops."""
    raise NotImplementedError("torch.library.register_torch_dispatch: modes see functions of torch only")


def _define(qualified):
    return CustomOpDef(qualified)


def define(qualname, schema=None, *, lib=None, tags=(), func=None):
    """Names an op; ``impl`` gives it implementations."""
    if qualname not in _defined:
        _define(qualname.partition("(")[0])
    return None if schema is not None else (lambda function: function)


#: Devices of dispatch keys.
_KEYS = {"CPU": "cpu", "CUDA": "cuda", "Meta": "meta", "CompositeImplicitAutograd": None, "CompositeExplicitAutograd": None, "default": None, "": None, "Autograd": None}


def impl(qualname, types, func=None, *, lib=None):
    """An implementation of an op for some devices."""
    kinds = [types] if isinstance(types, str) else list(types)

    def register(function):
        for kind in kinds:
            _implement(qualname, _KEYS.get(kind, kind), function)
        return function

    return register if func is None else register(func)


def _implement(qualname, device, function):
    """Gives an op an implementation for a device; it waits for ops that are defined later."""
    name = qualname.partition(".")[0]
    if name not in _defined:
        _waiting.setdefault(name, []).append((device, function))
    elif device == "meta":
        _defined[name].register_fake(function)
    else:
        _defined[name].register_kernel(device, function)


class Library:
    """Ops of one namespace: ``define`` names them, ``impl`` gives them implementations."""

    def __init__(self, ns, kind, dispatch_key=""):
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema, alias_analysis="", *, tags=()):
        name = schema.partition("(")[0].strip()
        define(f"{self.ns}::{name}", schema)
        return name

    def impl(self, op_name, fn, dispatch_key="", *, with_keyset=False, allow_override=False):
        if fn is fallthrough_kernel:
            return
        name = op_name if isinstance(op_name, str) else op_name.__name__
        if self.ns == "aten":
            raise NotImplementedError(f"torch.library: ops of aten, such as {name}, cannot be given other implementations")
        impl(f"{self.ns}::{name.rpartition('::')[2].partition('.')[0]}", dispatch_key or self.dispatch_key, fn)

    def fallback(self, fn, dispatch_key="", *, with_keyset=False):
        raise NotImplementedError("torch.library.Library.fallback: there are no dispatch keys to fall back to")

    def _destroy(self):
        """Does nothing: ops live as long as the program."""


def fallthrough_kernel():
    """Passed to ``Library.impl`` to keep the default treatment of an op."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def get_ctx():
    """The context of a fake implementation, for sizes that depend on values."""
    raise NotImplementedError("torch.library.get_ctx: data-dependent sizes are not supported for meta tensors")


def get_kernel(op, dispatch_key):
    """An op's implementation for a device."""
    found = _known(op)
    device = _KEYS.get(dispatch_key, dispatch_key)
    return found._kernels.get(device, found._kernels.get(None))


_SCHEMA = {int: "SymInt", float: "float", bool: "bool", str: "str", Tensor: "Tensor", _C.dtype: "ScalarType", _C.device: "Device"}


def _default(value):
    """A default as schemas write it."""
    if isinstance(value, (str, _C.device)):
        return f'"{value}"'
    return str(value).removeprefix("torch.") if isinstance(value, _C.dtype) else value


def infer_schema(prototype_function, /, *, mutates_args, op_name=None):
    """A function's signature as a PyTorch schema."""
    import types
    import typing

    hints = typing.get_type_hints(prototype_function)

    def word(kind):
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if kind in _SCHEMA:
            return _SCHEMA[kind]
        if origin in (typing.Union, types.UnionType):
            given = [i for i in inner if i is not type(None)]
            one = "Scalar" if set(given) == {int, float, bool} else word(given[0]) if len(given) == 1 else None
            if one is not None:
                return one + "?" * (type(None) in inner)
        if origin in (list, tuple) or getattr(origin, "__name__", "") == "Sequence":
            return word(inner[0]) + "[]"
        raise ValueError(f"infer_schema: the type {kind} cannot be written as a schema")

    parts = []
    for parameter in inspect.signature(prototype_function).parameters.values():
        text = f"{word(hints[parameter.name])} {parameter.name}"
        parts.append(text if parameter.default is inspect.Parameter.empty else f"{text}={_default(parameter.default)}")
    result = hints.get("return")
    returned = "()" if result in (None, type(None)) else word(result) if typing.get_origin(result) is not tuple else f"({', '.join(map(word, typing.get_args(result)))})"
    return f"{op_name or ''}({', '.join(parts)}) -> {returned}"
