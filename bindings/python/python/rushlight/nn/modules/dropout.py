"""Elements or channels set to zero at random."""

from __future__ import annotations

from ... import _C
from .. import functional as F
from .module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]

Tensor = _C.Tensor


class _DropoutNd(Module):
    __constants__ = ["p", "inplace"]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, sets elements to zero with probability ``p`` and scales the others up."""

    _function = staticmethod(_C._nn.dropout)


class Dropout1d(_DropoutNd):
    """``Dropout`` of whole channels of sequences."""

    _function = staticmethod(F.dropout1d)


class Dropout2d(_DropoutNd):
    """``Dropout`` of whole channels of images."""

    _function = staticmethod(F.dropout2d)


class Dropout3d(_DropoutNd):
    """``Dropout`` of whole channels of volumes."""

    _function = staticmethod(F.dropout3d)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance, for ``SELU``."""

    _function = staticmethod(_C._nn.alpha_dropout)


class FeatureAlphaDropout(_DropoutNd):
    """``AlphaDropout`` of whole channels."""

    _function = staticmethod(_C._nn.feature_alpha_dropout)
