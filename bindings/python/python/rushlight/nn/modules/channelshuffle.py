"""Interleaving of the channels of groups."""

from __future__ import annotations

from ... import _C
from .module import Module

__all__ = ["ChannelShuffle"]

Tensor = _C.Tensor


class ChannelShuffle(Module):
    """Interleaves the channels of ``groups`` groups."""

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return _C._nn.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
