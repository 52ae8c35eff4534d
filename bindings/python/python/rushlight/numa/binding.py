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
    """How the launcher binds ranks. Where the machine says nothing of NUMA nodes, all processors are taken for one."""

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False
