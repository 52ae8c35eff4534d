"""``torch.distributed.tensor``: placements and meshes work; ``DTensor`` and its constructors raise on use."""

from ... import _absent
from .._names import REASON
from ..device_mesh import DeviceMesh, init_device_mesh
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full", "init_device_mesh", "ones",
    "rand", "randn", "zeros",
]

_absent.fill(globals(), "torch.distributed.tensor", REASON, "DTensor distribute_module distribute_tensor empty full ones rand randn zeros")
