"""``torch.distributed.optim``: optimizers of several ranks."""

from ... import _absent
from .._names import REASON
from .zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]

_absent.fill(globals(), "torch.distributed.optim", REASON, "DistributedOptimizer PostLocalSGDOptimizer")
