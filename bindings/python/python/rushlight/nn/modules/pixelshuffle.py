"""Pixel shuffling."""

from __future__ import annotations

from ... import _C
from .module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]

Tensor = _C.Tensor


class PixelShuffle(Module):
    """Rearranges channels into pixels: an image ``upscale_factor`` times as large."""

    __constants__ = ["upscale_factor"]

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return _C._nn.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Rearranges pixels into channels: the reverse of ``PixelShuffle``."""

    __constants__ = ["downscale_factor"]

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return _C._nn.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"
