"""Options of ``FullyShardedDataParallel``."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Optional, Sequence

__all__ = [
    "BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision",
    "OptimStateDictConfig", "ShardedOptimStateDictConfig", "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig", "StateDictSettings", "StateDictType",
]


class ShardingStrategy(Enum):
    """What is sharded: ZeRO-3, ZeRO-2, nothing, or both within groups of a 2D mesh."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When the next block's gather starts in backward passes: always as early as it can."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


class StateDictType(Enum):
    """Which tensors state dicts hold: whole ones, or shards."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class MixedPrecision:
    """Dtypes of gathered parameters, of reduction, and of buffers."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type] = ()


@dataclass
class CPUOffload:
    """Whether shards are in the host's memory."""

    offload_params: bool = False


@dataclass
class StateDictConfig:
    """Options of state dicts."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """Whole tensors, on all ranks or on rank 0."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """Local tensors."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """DTensors."""

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """Options of optimizer state dicts."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Whole states, on all ranks or on rank 0."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """Local states."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """States as DTensors."""

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """The type of state dicts in force and its options."""

    state_dict_type: StateDictType
    state_dict_config: Optional[StateDictConfig]
    optim_state_dict_config: Optional[OptimStateDictConfig]
