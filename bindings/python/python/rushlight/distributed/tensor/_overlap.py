"""Layers of distributed tensors that overlap products and communication (``torch.distributed._symmetric_memory``)."""

from ... import _C
from ._api import DTensor
from .placement_types import Shard

#: Where the output of the layer that runs next will be needed: set by ``RowwiseParallel``.
_wanted = None


def overlaps(mesh):
    """Whether layers over a mesh of one dimension overlap."""
    from .._symmetric_memory import _overlaps

    return mesh.ndim == 1 and _overlaps(mesh.get_group())


def rows(value, mesh, layout):
    """The dimension of a tensor that is split in equal parts and is not summed over, or None."""
    if not layout.is_shard():
        return None
    dim, count = layout.dim % value.dim(), mesh.size()
    return dim if dim < value.dim() - 1 and value.shape[dim] % count == 0 else None


def want(layout):
    """Sets where the next layer's output will be needed; returns what was set before."""
    global _wanted
    before, _wanted = _wanted, layout
    return before


def linear(x, weight):
    """``linear`` without a bias if it can overlap its communication, or None."""
    if not (isinstance(x, DTensor) and isinstance(weight, DTensor)) or x._mesh != weight._mesh or x.dim() < 2 or not overlaps(x._mesh):
        return None
    mesh, (placed,), (split,) = x._mesh, x._placements, weight._placements
    group = mesh.get_group()._group
    shape = [*x._shape[:-1], weight._shape[0]]
    if split.is_shard(0) and weight._shape[0] % mesh.size() == 0:
        dim = rows(x, mesh, placed)
        if dim is not None:
            local = _C._overlapped_linear(x._local_tensor, weight._local_tensor, dim, True, group)
            return DTensor._of(local, mesh, (Shard(len(shape) - 1),), shape)
    if split.is_shard(1) and weight._shape[1] % mesh.size() == 0 and placed.is_shard(x.dim() - 1) and _wanted is not None:
        dim = rows(x, mesh, _wanted)
        if dim is not None:
            local = _C._overlapped_linear(x._local_tensor, weight._local_tensor, dim, False, group)
            return DTensor._of(local, mesh, (Shard(dim),), shape)
    return None
