"""State dicts as entries of a checkpoint: nested containers flattened to names, tensors to parts."""

from __future__ import annotations

from collections.abc import Mapping

from ... import _C
from ..tensor.placement_types import _codes
from .stateful import Stateful


def is_distributed(value):
    """Whether a value is a ``DTensor``, of any implementation."""
    return hasattr(value, "placements") and hasattr(value, "device_mesh") and hasattr(value, "to_local")


def is_tensor(value):
    return isinstance(value, _C.Tensor) or is_distributed(value)


def of_stateful(state_dict):
    """A copy in which objects with a state are replaced by it."""
    return {key: value.state_dict() if isinstance(value, Stateful) and not is_tensor(value) else value for key, value in state_dict.items()}


def _has_tensors(value):
    """Lists are flattened if they hold tensors or containers, as PyTorch does."""
    if is_tensor(value) or isinstance(value, Mapping):
        return True
    return isinstance(value, (list, tuple)) and any(_has_tensors(item) for item in value)


def flatten(state_dict):
    """Values by their names, and the paths of the names. Keys of dictionaries become strings in names and in paths, as in PyTorch."""
    values, paths = {}, {}

    def add(path, value):
        name = ".".join(map(str, path))
        if name in values:
            raise ValueError(f"duplicated flatten key {name}")
        values[name], paths[name] = value, tuple(path)

    def visit(path, value):
        if isinstance(value, Mapping) and not is_tensor(value):
            # PyTorch leaves empty dictionaries out, also those in lists.
            for key, item in value.items():
                visit((*path, str(key)), item)
        elif isinstance(value, (list, tuple)) and _has_tensors(value):
            for i, item in enumerate(value):
                visit((*path, i), item)
        else:
            add(path, value)

    for key, value in state_dict.items():
        visit((str(key),), value)
    return values, paths


def local_part(tensor):
    """A tensor's whole shape, this rank's part of it as a plain tensor, its offsets, and whether another rank has the same part (for a ``DTensor``: only
    the first rank of each dimension that is replicated writes)."""
    if not is_distributed(tensor):
        return tuple(tensor.shape), tensor, (0,) * tensor.dim(), None
    shape, mesh, local = tuple(tensor.shape), tensor.device_mesh, tensor.to_local()
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return shape, None, (), False
    if hasattr(mesh, "_core"):
        return _own_part(tensor, shape, mesh, local, coordinate)
    offsets, sizes, first = [0] * len(shape), list(shape), True
    for placement, place, dim in zip(tensor.placements, coordinate, range(len(coordinate))):
        count = mesh.size(dim)
        if placement.is_shard():
            split = placement.dim % max(len(shape), 1)
            # As torch.chunk: all parts but the last ones are of the same size.
            part = -(-sizes[split] // count)
            start = min(part * place, sizes[split])
            offsets[split] += start
            sizes[split] = min(part, sizes[split] - start)
        elif placement.is_partial():
            raise NotImplementedError("checkpoint: a DTensor with a Partial placement; redistribute it to Replicate or Shard first")
        elif place != 0:
            first = False
    if tuple(local.shape) != tuple(sizes):
        raise RuntimeError(f"checkpoint: a DTensor of shape {shape} has a local part of shape {tuple(local.shape)}, expected {tuple(sizes)}")
    return shape, local, tuple(offsets), first


def _own_part(tensor, shape, mesh, local, coordinate):
    """``local_part`` of our own ``DTensor``: dimensions may be split over several of the mesh, in any order."""
    if any(p.is_partial() for p in tensor.placements):
        raise NotImplementedError("checkpoint: a DTensor with a Partial placement; redistribute it to Replicate or Shard first")
    part = _C._local_part(list(shape), mesh._core, _codes(tensor.placements))
    first = all(place == 0 for p, place in zip(tensor.placements, coordinate) if p.is_replicate())
    return shape, local, tuple(start for start, _ in part), first


def into_local(tensor):
    """The plain tensor that a part is loaded into."""
    return tensor.to_local() if is_distributed(tensor) else tensor
