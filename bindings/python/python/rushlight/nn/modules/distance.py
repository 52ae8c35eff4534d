"""Distances and similarities of vectors."""

from __future__ import annotations

from ... import _C
from .module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]

Tensor = _C.Tensor


class PairwiseDistance(Module):
    """The p-norm of differences."""

    __constants__ = ["norm", "eps", "keepdim"]

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return _C._nn.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle between vectors."""

    __constants__ = ["dim", "eps"]

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return _C._nn.cosine_similarity(x1, x2, self.dim, self.eps)
