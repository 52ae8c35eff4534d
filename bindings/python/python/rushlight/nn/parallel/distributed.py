"""``DistributedDataParallel``, which needs processes that work together."""

from ... import _absent
from ...distributed._names import REASON

__all__ = ["DistributedDataParallel"]

DistributedDataParallel = _absent.absent_class("torch.nn.parallel.DistributedDataParallel", REASON)
