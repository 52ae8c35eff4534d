"""Modules moved to other devices and dtypes."""

from __future__ import annotations

from collections.abc import Callable

from ... import _C
from ... import __future__ as _future
from ...autograd.grad_mode import no_grad
from ...utils import swap_tensors
from ..parameter import Parameter

Tensor = _C.Tensor


def _converted(param, fn):
    """What a conversion makes of a parameter. Classes of parameters have conversions of their own, which may change the parameter in place and return it."""
    if type(param) is Parameter:
        return fn(param.data)
    with no_grad():
        made = fn(param)
    return made.data if made is not param and isinstance(made, Parameter) else made


def _destination(args: tuple, kwargs: dict):
    """The device, dtype, waiting and memory format that the arguments of ``Module.to`` name."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    memory_format, tensor = kwargs.pop("memory_format", None), kwargs.pop("tensor", None)
    non_blocking = kwargs.pop("non_blocking", False)
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
    for arg in args:
        if isinstance(arg, Tensor):
            tensor = arg
        elif isinstance(arg, _C.dtype):
            dtype = arg
        elif isinstance(arg, (str, int, _C.device)) and not isinstance(arg, bool):
            device = arg
        elif isinstance(arg, bool):
            non_blocking = arg
        elif arg is not None:
            raise TypeError(f"to(): expected a device, dtype or Tensor, got {type(arg).__name__}")
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")
    if isinstance(device, int):
        device = f"cuda:{device}"
    return device, dtype, non_blocking, memory_format


def _swapped(param, fn):
    """Converts a parameter by swapping it with a new one."""
    gradient = param.grad
    made = type(param)(fn(param.data), param.requires_grad)
    param.grad = None
    vars(made).update(vars(param))
    try:
        swap_tensors(param, made)
    except RuntimeError as error:
        raise RuntimeError(f"_apply(): Couldn't swap a parameter: {error}") from error
    if gradient is not None:
        param.grad = fn(gradient.detach()).requires_grad_(gradient.requires_grad)


class ConversionMethods:
    """The part of ``Module`` that converts parameters and buffers."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True):
        """Converts every parameter, gradient and buffer; parameters stay the same objects."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, param in self._parameters.items():
            if param is None:
                continue
            if _future.get_swap_module_params_on_conversion():
                _swapped(param, fn)
                continue
            if _future.get_overwrite_module_params_on_conversion():
                made = type(param)(fn(param.data), param.requires_grad)
                made.grad = None if param.grad is None else fn(param.grad.detach()).requires_grad_(param.grad.requires_grad)
                self._parameters[name] = made
                continue
            gradient, data = param.grad, _converted(param, fn)
            if gradient is not None:
                # The gradient may not fit the converted parameter.
                param.grad = None
            if data is not param:
                param.data = data
            if gradient is not None:
                param.grad = fn(gradient.detach()).requires_grad_(gradient.requires_grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args, **kwargs):
        """Moves parameters and buffers to a device, a dtype (those of floats) or a memory format: the arguments of ``Tensor.to``."""
        device, dtype, non_blocking, memory_format = _destination(args, kwargs)

        def convert(t):
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device, dtype if t.is_floating_point() or t.is_complex() else None, non_blocking, memory_format=memory_format)
            return t.to(device, dtype if t.is_floating_point() or t.is_complex() else None, non_blocking)

        return self._apply(convert)

    def to_empty(self, *, device, recurse: bool = True):
        """Moves to a device without copying: elements are not set."""
        return self._apply(lambda t: _C._torch.empty_like(t, device=device), recurse=recurse)

    def cpu(self):
        """Moves to the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device=None):
        """Moves to an accelerator."""
        return self._apply(lambda t: t.cuda(device))

    def xpu(self, device=None):
        """Moves to an accelerator."""
        return self._apply(lambda t: t.xpu(device))

    def type(self, dst_type):
        """Casts everything."""
        return self._apply(lambda t: t.type(dst_type))

    def _cast(self, dtype):
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self):
        """Casts floats to float32."""
        return self._cast(_C.float32)

    def double(self):
        """Casts floats to float64."""
        return self._cast(_C.float64)

    def half(self):
        """Casts floats to float16."""
        return self._cast(_C.float16)

    def bfloat16(self):
        """Casts floats to bfloat16."""
        return self._cast(_C.bfloat16)

    def share_memory(self):
        """Moves parameters and buffers to shared memory."""
        return self._apply(lambda t: t.share_memory_())
