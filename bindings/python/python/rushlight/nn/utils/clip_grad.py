"""Gradient clipping."""

from __future__ import annotations

import types
import warnings

from ... import _C

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]

Tensor = _C.Tensor


def _without_grad(function):
    from functools import wraps

    @wraps(function)
    def call(*args, **kwargs):
        recording = _C._set_grad_enabled(False)
        try:
            return function(*args, **kwargs)
        finally:
            _C._set_grad_enabled(recording)

    return call


def _gradients(parameters) -> list:
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    elif isinstance(parameters, str) or not hasattr(parameters, "__iter__"):
        raise TypeError(f"expected a Tensor or an iterable of Tensors, got {type(parameters).__name__}")
    return [p.grad for p in parameters if p.grad is not None]


@_without_grad
def get_total_norm(tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """The norm of all elements of all tensors."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not tensors:
        return _C.tensor(0.0)
    if any(getattr(t, "_is_dtensor", False) for t in tensors):
        from ...distributed.tensor._norm import total_norm

        total = total_norm(tensors, float(norm_type))
    elif any(t.device != tensors[0].device for t in tensors):
        # A model on several devices: the norm of the norms, where the first gradient is.
        total = _C._foreach_total_norm([_C._foreach_total_norm([t], float(norm_type)).to(tensors[0].device) for t in tensors], float(norm_type))
    else:
        total = _C._foreach_total_norm(tensors, float(norm_type))
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(
            f"The total norm of order {float(norm_type)} for gradients from `parameters` is non-finite, so it cannot be clipped. To "
            "disable this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


@_without_grad
def clip_grads_with_norm_(parameters, max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Scales gradients down if their known total norm is above ``max_norm``."""
    gradients = _gradients(parameters)
    if getattr(total_norm, "_is_dtensor", False):
        total_norm = total_norm.full_tensor()
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    for device in dict.fromkeys(g.device for g in gradients):
        _C._foreach_scale_([g for g in gradients if g.device == device], factor.to(device))


#: The private name of PyTorch 2.5 and before.
_clip_grads_with_norm_, _get_total_norm = clip_grads_with_norm_, get_total_norm


@_without_grad
def clip_grad_norm_(
    parameters, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """Scales gradients down so that their total norm is at most ``max_norm``. Returns the norm before.

    >>> import rushlight as torch
    >>> p = torch.nn.Parameter(torch.zeros(2))
    >>> p.grad = torch.tensor([3.0, 4.0])
    >>> torch.nn.utils.clip_grad_norm_([p], 1.0)
    tensor(5.)
    >>> p.grad
    tensor([0.6000, 0.8000])
    """
    is_generator = isinstance(parameters, types.GeneratorType)
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if is_generator and not parameters:
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The old name of ``clip_grad_norm_``."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.", FutureWarning, stacklevel=2
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@_without_grad
def clip_grad_value_(parameters, clip_value: float, foreach: bool | None = None) -> None:
    """Clamps every element of gradients to ``[-clip_value, clip_value]``."""
    clip_value = float(clip_value)
    for gradient in _gradients(parameters):
        gradient.clamp_(min=-clip_value, max=clip_value)
