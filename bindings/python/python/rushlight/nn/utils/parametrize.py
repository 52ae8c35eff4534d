"""Parameters that are functions of others: ``torch.nn.utils.parametrize``."""

from __future__ import annotations

import copy
from contextlib import contextmanager

from ... import _C
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]

Tensor = _C.Tensor

_caching = 0
_cache: dict = {}


@contextmanager
def cached():
    """Within this context, parametrized tensors are computed once and cached."""
    global _caching
    _caching += 1
    try:
        yield
    finally:
        _caching -= 1
        if not _caching:
            _cache.clear()


def _register_or_set(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class ParametrizationList(ModuleList):
    """The functions that compute one tensor, and their inputs: ``original``, or ``original0``, ``original1``, …"""

    def __init__(self, modules, original: Tensor, unsafe: bool = False) -> None:
        modules = list(modules)
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        original_shape, original_dtype = original.shape, original.dtype
        recording = _C._set_grad_enabled(False)
        try:
            new = original
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:
                        # The parametrization has no inverse: the tensor is used unchanged.
                        pass
        finally:
            _C._set_grad_enabled(recording)
        if not isinstance(new, (Tensor, tuple, list)):
            raise ValueError(f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got {type(new).__name__}")
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if original.dtype != new.dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {new.dtype}"
                )
            if original.device != new.device:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the device.\n"
                    f"original.device: {original.device}\nright_inverse(original).device: {new.device}"
                )
            recording = _C._set_grad_enabled(False)
            try:
                # The parameter stays the same object, so optimizers keep it.
                original.data = new.detach()
            finally:
                _C._set_grad_enabled(recording)
            _register_or_set(self, "original", original)
        else:
            for i, tensor in enumerate(new):
                if not isinstance(tensor, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                        f"Got element {i} of the sequence with type {type(tensor).__name__}."
                    )
                tensor = tensor.detach()
                if isinstance(original, Parameter):
                    tensor = Parameter(tensor, original.requires_grad)
                _register_or_set(self, f"original{i}", tensor)
        if not unsafe:
            self._check(original_shape, original_dtype)

    def _check(self, shape, dtype) -> None:
        made = self()
        if not isinstance(made, Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
        if made.dtype != dtype:
            raise ValueError(
                "Registering a parametrization may not change the dtype of the tensor, unless `unsafe` flag is enabled.\n"
                f"unparametrized dtype: {dtype}\nparametrized dtype: {made.dtype}"
            )
        if made.shape != shape:
            raise ValueError(
                "Registering a parametrization may not change the shape of the tensor, unless `unsafe` flag is enabled.\n"
                f"unparametrized shape: {shape}\nparametrized shape: {made.shape}"
            )

    def right_inverse(self, value: Tensor) -> None:
        """Sets the originals so that the tensor is ``value``."""
        recording = _C._set_grad_enabled(False)
        try:
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            if self.is_tensor:
                if not isinstance(value, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
                self.original.data = value.detach()
                return
            if not isinstance(value, (tuple, list)):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
            if len(value) != self.ntensors:
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of length {len(value)}."
                )
            for i, tensor in enumerate(value):
                getattr(self, f"original{i}").data = tensor.detach()
        finally:
            _C._set_grad_enabled(recording)

    def forward(self) -> Tensor:
        first, *rest = self
        x = first(self.original) if self.is_tensor else first(*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for module in rest:
            x = module(x)
        return x


def _inject_class(module: Module) -> None:
    """Gives a module its own class, on which its parametrized tensors are properties."""
    base = type(module)

    def no_pickling(self):
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict(): save that instead of the module"
        )

    def deep_copy(self, memo):
        copied = memo[id(self)] = self.__class__.__new__(self.__class__)
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    module.__class__ = type(f"Parametrized{base.__name__}", (base,), {
        "__getstate__": no_pickling, "__deepcopy__": deep_copy, "__module__": base.__module__, "__doc__": base.__doc__,
    })


def _inject_property(module: Module, name: str) -> None:
    def value(self) -> Tensor:
        if not _caching:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def assign(self, value) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(value, assign))


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Replaces a tensor of a module by what ``parametrization`` computes from it.

    >>> import rushlight as torch
    >>> class Symmetric(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).mT
    >>> layer = torch.nn.utils.parametrize.register_parametrization(torch.nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.T).all())
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        known = module.parametrizations[tensor_name]
        if unsafe:
            known.unsafe = True
        if not known.unsafe:
            before = getattr(module, tensor_name)
            made = parametrization(before)
            if not isinstance(made, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
            if made.shape != before.shape or made.dtype != before.dtype:
                raise ValueError(
                    "Registering a parametrization may not change the shape or the dtype of the tensor, unless the `unsafe` flag is enabled."
                )
        known.append(parametrization)
        return module
    if tensor_name not in module._buffers and tensor_name not in module._parameters:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'")
    original = getattr(module, tensor_name)
    functions = ParametrizationList([parametrization], original, unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _inject_class(module)
        module.parametrizations = ModuleDict()
    _inject_property(module, tensor_name)
    module.parametrizations[tensor_name] = functions
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module, or one of its tensors, is parametrized."""
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes a parametrized tensor a parameter or buffer again: with its current value, or with that of the original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    functions = module.parametrizations[tensor_name]
    if functions.is_tensor:
        original = functions.original
        if leave_parametrized:
            original.data = getattr(module, tensor_name).detach()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register_or_set(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class a module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: str | None = None) -> Module:
    """Copies the parametrizations of another module, and their parameters."""
    if not is_parametrized(from_module):
        return to_module
    names = [tensor_name] if tensor_name is not None else list(from_module.parametrizations)
    for name in names:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            _register_or_set(to_module, name, copy.deepcopy(getattr(from_module, name).detach()))
        for function in source:
            register_parametrization(to_module, name, copy.deepcopy(function))
        target = to_module.parametrizations[name]
        originals = ["original"] if source.is_tensor else [f"original{i}" for i in range(source.ntensors)]
        for original in originals:
            getattr(target, original).data = getattr(source, original).detach().clone()
    return to_module
