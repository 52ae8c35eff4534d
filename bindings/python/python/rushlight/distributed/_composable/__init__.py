"""``torch.distributed._composable``: the old place of ``fully_shard``."""

from ... import _absent
from .._names import REASON
from ..fsdp import fully_shard
from .replicate import replicate

__all__ = ["checkpoint", "contract", "fully_shard", "replicate"]

_absent.fill(globals(), "torch.distributed._composable", REASON, "checkpoint contract")
