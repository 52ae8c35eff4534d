"""Upsampling."""

from __future__ import annotations

from ... import _C
from .. import functional as F
from .module import Module
from .utils import _settings

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]

Tensor = _C.Tensor


class Upsample(Module):
    """Resizes by interpolation to a ``size`` or by a ``scale_factor``."""

    __constants__ = ["size", "scale_factor", "mode", "align_corners", "name", "recompute_scale_factor"]

    def __init__(
        self, size=None, scale_factor=None, mode: str = "nearest", align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, recompute_scale_factor=self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        first = "scale_factor" if self.scale_factor is not None else "size"
        return _settings(self, first) + f", mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsampling of images by the nearest pixel."""

    def __init__(self, size=None, scale_factor=None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsampling of images, bilinear, with corners aligned."""

    def __init__(self, size=None, scale_factor=None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
