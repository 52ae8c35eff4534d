"""Windows of images as columns, and back."""

from __future__ import annotations

from ... import _C
from .module import Module
from .utils import _settings

__all__ = ["Fold", "Unfold"]

Tensor = _C.Tensor


class Fold(Module):
    """Sums columns into images of ``output_size``."""

    __constants__ = ["output_size", "kernel_size", "dilation", "padding", "stride"]

    def __init__(self, output_size, kernel_size, dilation=1, padding=0, stride=1) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return _C._nn.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return _settings(self, "output_size", "kernel_size", "dilation", "padding", "stride")


class Unfold(Module):
    """Every window of an image as a column."""

    __constants__ = ["kernel_size", "dilation", "padding", "stride"]

    def __init__(self, kernel_size, dilation=1, padding=0, stride=1) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return _C._nn.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return _settings(self, "kernel_size", "dilation", "padding", "stride")
