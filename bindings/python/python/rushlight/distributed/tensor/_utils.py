"""Local parts of distributed tensors."""

from ... import _C
from .placement_types import _codes, _StridedShard

__all__ = ["compute_local_shape_and_global_offset"]


def compute_local_shape_and_global_offset(global_shape, mesh, placements):
    """The size of this rank's part and its place in the whole."""
    if any(isinstance(p, _StridedShard) for p in placements):
        raise NotImplementedError("compute_local_shape_and_global_offset: parts of strided shards lie apart; redistribute to Shard or Replicate first")
    parts = _C._local_part(list(global_shape), mesh._core, _codes(placements))
    return tuple(size for _, size in parts), tuple(start for start, _ in parts)
