"""Gradients of convolutions as functions: ``torch.nn.grad``."""

from __future__ import annotations

from .. import _C

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]

Tensor = _C.Tensor


def _gradient(name: str, shape, other: Tensor, grad_output: Tensor, of_input: bool, stride, padding, dilation, groups) -> Tensor:
    recording = _C._set_grad_enabled(True)
    try:
        wanted = _C._torch.zeros(tuple(shape), dtype=other.dtype, device=other.device, requires_grad=True)
        pair = (wanted, other.detach()) if of_input else (other.detach(), wanted)
        out = getattr(_C._nn, name)(*pair, None, stride, padding, dilation, groups)
        return _C._grad([out], [wanted], [grad_output])[0]
    finally:
        _C._set_grad_enabled(recording)


def _of_input(name: str):
    def gradient(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1) -> Tensor:
        return _gradient(name, input_size, weight, grad_output, True, stride, padding, dilation, groups)

    gradient.__name__ = gradient.__qualname__ = name + "_input"
    gradient.__doc__ = f"The gradient of ``{name}`` by its input."
    return gradient


def _of_weight(name: str):
    def gradient(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1) -> Tensor:
        return _gradient(name, weight_size, input, grad_output, False, stride, padding, dilation, groups)

    gradient.__name__ = gradient.__qualname__ = name + "_weight"
    gradient.__doc__ = f"The gradient of ``{name}`` by its weight."
    return gradient


conv1d_input, conv2d_input, conv3d_input = map(_of_input, ("conv1d", "conv2d", "conv3d"))
conv1d_weight, conv2d_weight, conv3d_weight = map(_of_weight, ("conv1d", "conv2d", "conv3d"))
