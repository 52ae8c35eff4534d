"""Normalisation of each instance separately."""

from __future__ import annotations

import warnings

from ... import _C
from .batchnorm import _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d",
]

Tensor = _C.Tensor


class _InstanceNorm(_NormBase):
    """Instance normalisation; subclasses set the dimensions of an instance."""

    _dims = 1

    def _get_no_batch_dim(self):
        """Dimensions of an input without a batch."""
        return self._dims + 1

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False, track_running_stats: bool = False,
        device=None, dtype=None, *, bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _check_input_dim(self, input: Tensor) -> None:
        unbatched, batched = self._dims + 1, self._dims + 2
        if input.dim() not in (unbatched, batched):
            raise ValueError(f"expected {unbatched}D or {batched}D input (got {input.dim()}D input)")

    def _channel_dim(self, input: Tensor) -> int:
        return input.dim() - self._dims - 1

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        channels = input.size(self._channel_dim(input))
        if channels != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={self._channel_dim(input)} to match num_features ({self.num_features}), "
                    f"but got: {channels}."
                )
            warnings.warn(
                f"input's size at dim={self._channel_dim(input)} does not match num_features. You can silence this warning by not "
                "passing in num_features, which is not used because affine=False", stacklevel=2,
            )
        unbatched = input.dim() == self._dims + 1
        given = input.unsqueeze(0) if unbatched else input
        own_statistics = self.training or not self.track_running_stats
        momentum = self.momentum if self.momentum is not None else 0.0
        out = _C._nn.instance_norm(
            given, self.running_mean, self.running_var, self.weight, self.bias, own_statistics, momentum, self.eps
        )
        return out.squeeze(0) if unbatched else out


class InstanceNorm1d(_InstanceNorm):
    """Normalises every channel of every sequence."""


class InstanceNorm2d(_InstanceNorm):
    """Normalises every channel of every image."""

    _dims = 2


class InstanceNorm3d(_InstanceNorm):
    """Normalises every channel of every volume."""

    _dims = 3


class _LazyInstanceNorm(_LazyNormBase):
    def _channel_dim(self, input: Tensor) -> int:
        return input.dim() - self._dims - 1


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """An ``InstanceNorm1d`` whose ``num_features`` the first input sets."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """An ``InstanceNorm2d`` whose ``num_features`` the first input sets."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """An ``InstanceNorm3d`` whose ``num_features`` the first input sets."""

    cls_to_become = InstanceNorm3d
