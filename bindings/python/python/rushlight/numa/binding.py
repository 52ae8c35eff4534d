"""``torch.numa.binding``: the launcher's ``--numa-binding``."""

import dataclasses
import enum

__all__ = ["AffinityMode", "NumaOptions"]


class AffinityMode(str, enum.Enum):
    """The processors of a rank: see ``rushlight run --help``."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclasses.dataclass(frozen=True)
class NumaOptions:
    """How the launcher binds ranks. Without NUMA information all processors count as one node."""

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False
