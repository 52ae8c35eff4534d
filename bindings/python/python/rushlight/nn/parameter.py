"""Tensors that modules register: ``Parameter``, ``Buffer``, and those whose size is not known yet."""

from __future__ import annotations

from .. import _C

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin", "is_lazy"]

Tensor = _C.Tensor


class _ParameterMeta(type(Tensor)):
    """Tensors of classes that handle their own ops are parameters if they are marked as such."""

    def __instancecheck__(self, instance):
        return super().__instancecheck__(instance) or self is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that is a module's parameter when it is assigned to one of the module's attributes.

    >>> import rushlight as torch
    >>> torch.nn.Parameter(torch.ones(2))
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True):
        if data is None:
            data = _C._torch.empty(0)
        elif not isinstance(data, Tensor):
            raise TypeError(f"Parameter: expected a Tensor as data, got {type(data).__name__}")
        if cls is Parameter and (_C._dispatches(data) or getattr(data, "_is_dtensor", False)):
            # A class that handles its own ops stays what it is; modules find the mark.
            made = data.detach().requires_grad_(requires_grad)
            if type(made) is not type(data):
                raise RuntimeError(f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns an instance of the same type")
            made._is_param = True
            return made
        return cls._make_subclass(data, requires_grad)

    __torch_function__ = _C._disabled_torch_function_impl

    def __deepcopy__(self, memo):
        known = memo.get(id(self))
        if known is not None:
            return known
        copied = memo[id(self)] = type(self)._make_subclass(self.detach().clone(), self.requires_grad)
        copied.__dict__.update(self.__dict__)
        return copied


class _BufferMeta(type(Tensor)):
    """Buffers without a size are buffers, too."""

    def __instancecheck__(self, instance):
        return super().__instancecheck__(instance) or self is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that is a module's buffer when it is assigned to one of the module's attributes."""

    persistent: bool = True
    __torch_function__ = _C._disabled_torch_function_impl

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True):
        if data is None:
            data = _C._torch.empty(0)
        made = cls._make_subclass(data, data.requires_grad)
        made.persistent = persistent
        return made

    def __repr__(self):
        return repr(self.detach().requires_grad_(self.requires_grad))


_C._plain_types([Parameter, Buffer])


class UninitializedTensorMixin:
    """The common part of uninitialised tensors: they move between dtypes and devices, and ``materialize`` makes them tensors."""

    _becomes: type

    def __new__(cls, device=None, dtype=None, requires_grad: bool = True):
        data = _C._torch.empty(0, device=device, dtype=dtype)
        return cls._make_subclass(data, requires_grad if issubclass(cls, Parameter) else False)

    def materialize(self, shape, device=None, dtype=None) -> None:
        """Gives this tensor a size; its elements are not set."""
        device = self.device if device is None else device
        dtype = self.dtype if dtype is None else dtype
        self.data = _C._torch.empty(shape, device=device, dtype=dtype)
        self.__class__ = self._becomes

    @property
    def shape(self):
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` when trying "
            "to load an uninitialized parameter into an initialized one. Call `forward` to initialize the parameters before accessing "
            "their attributes."
        )

    def share_memory_(self):
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before calling `module.share_memory()`."
        )

    def __repr__(self):
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol):
        return type(self), (self.device, self.dtype, self.requires_grad)

    def __deepcopy__(self, memo):
        copied = memo[id(self)] = type(self)(self.device, self.dtype, self.requires_grad)
        return copied


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose size the first forward pass sets."""

    _becomes = Parameter


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose size the first forward pass sets."""

    _becomes = Buffer
    _is_buffer = True
    persistent: bool = True


def is_lazy(param) -> bool:
    """Whether a tensor has no size yet."""
    return isinstance(param, UninitializedTensorMixin)
