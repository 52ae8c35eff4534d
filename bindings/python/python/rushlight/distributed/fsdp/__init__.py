"""``torch.distributed.fsdp``: training with sharded parameters, gradients and optimizer states."""

from ._fully_shard import (
    CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, UnshardHandle, fully_shard, register_fsdp_forward_method, share_comm_ctx,
)
from ._updates import UpdateInBackward
from .api import *  # noqa: F401,F403
from .api import __all__ as _options
from .fully_sharded_data_parallel import FlatParameter, FullyShardedDataParallel, OptimStateKeyType

__all__ = [
    "CPUOffloadPolicy", "FSDPModule", "FlatParameter", "FullyShardedDataParallel", "MixedPrecisionPolicy", "OffloadPolicy", "OptimStateKeyType", "UnshardHandle", "UpdateInBackward",
    "fully_shard", "register_fsdp_forward_method", "share_comm_ctx", *_options,
]
