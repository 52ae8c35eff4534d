"""``dtensor[index]``: labels of dimensions that an index keeps."""

from ... import _C
from ._api import DTensor
from .placement_types import Replicate, Shard

Tensor = _C.Tensor


def _labels(t, index):
    """The tensors among the parts of an index, the labels of the tensor, those of the index tensors and those of the result."""
    from ._rows import LETTERS

    parts = list(index) if isinstance(index, tuple) else [index]
    if any(isinstance(p, bool) or (isinstance(p, Tensor) and p.dtype in (_C.bool, _C.uint8)) for p in parts):
        raise NotImplementedError("a mask as index of a DTensor: the size of the result depends on values; use where, masked_fill or full_tensor()")
    taken = sum(p is not None and p is not Ellipsis for p in parts)
    if taken > t.dim():
        raise IndexError(f"too many indices for tensor of dimension {t.dim()}")
    rest = [slice(None)] * (t.dim() - taken)
    at = next((i for i, p in enumerate(parts) if p is Ellipsis), None)
    parts = parts + rest if at is None else parts[:at] + rest + parts[at + 1 :]
    own, result, tensors, places, dim = "", [], [], [], 0
    for part in parts:
        if part is None:
            result.append("_")
            continue
        size, letter = t._shape[dim], LETTERS[dim]
        dim += 1
        if isinstance(part, slice):
            is_whole = part.start in (None, 0) and (part.stop is None or (isinstance(part.stop, int) and part.stop >= size)) and part.step in (None, 1)
            own += letter if is_whole else "_"
            result.append(own[-1])
            continue
        own += "_"
        if isinstance(part, (list, range)):
            places.append(len(result))
            tensors.append((None, _depth(part)))
        elif isinstance(part, Tensor) and part.dim():
            places.append(len(result))
            tensors.append((part, part.dim()))
    # Index tensors of one shape may be sharded, alike. What they pick stands where they stood, or in front if other
    # dimensions stood between.
    dims = max((n for _, n in tensors), default=0)
    given = [part for part, _ in tensors if part is not None]
    alike = len(given) == len(tensors) and len({tuple(part.shape) for part in given}) == 1
    index_labels = "".join(LETTERS[-1 - d] for d in range(dims)) if alike else "_" * dims
    if tensors:
        at = places[0] if len(set(places)) == 1 else 0
        result[at:at] = index_labels
    return given, own, [index_labels if alike else "_" * part.dim() for part in given], "".join(result)


def _depth(given):
    depth = 0
    while isinstance(given, (list, tuple, range)):
        depth += 1
        given = given[0] if len(given) else 0
    return depth


def get_item(func, name, args, kwargs):
    from ._ops import run

    t, index = args
    if not isinstance(t, DTensor):
        raise NotImplementedError("a plain tensor with a DTensor as index: use index.full_tensor(), or distribute_tensor for the tensor")
    given, own, indexed, result = _labels(t, index)
    return run(func, name, ("labels", f"first:{','.join([own, *indexed])}->{result}", [], False), args, kwargs, [t, *given])


def set_item(func, name, args, kwargs):
    """Values of dimensions that each rank has whole."""
    t, index, value = args
    if not isinstance(t, DTensor):
        raise NotImplementedError("values of a plain tensor by a DTensor: use full_tensor()")
    if isinstance(index, Tensor) and index.dtype == _C.bool and index.shape == t.shape and (not isinstance(value, Tensor) or value.dim() == 0):
        from ._rules import in_place

        return in_place(Tensor.masked_fill_, "masked_fill_", (t, index, value), {})
    given, own, _, result = _labels(t, index)
    split = [p.dim for p in t._placements if isinstance(p, Shard)]
    if any(own[d] == "_" for d in split) or any(type(p) not in (Shard, Replicate) for p in t._placements) or any(isinstance(part, DTensor) for part in given):
        raise NotImplementedError(f"values of a DTensor placed {t._placements} at an index: the dimensions that the index picks from must be whole; redistribute it first")
    if isinstance(value, DTensor):
        # Along a sharded dimension, the part that belongs here.
        at = {d: result.index(own[d]) - len(result) + value.dim() for d in split}
        has = lambda d: at[d] >= 0 and value._shape[at[d]] == t._shape[d]
        placements = [Shard(at[p.dim]) if isinstance(p, Shard) and has(p.dim) else Replicate() for p in t._placements]
        value = value.redistribute(placements=placements)._local_tensor
    elif isinstance(value, Tensor) and value.dim():
        raise RuntimeError("__setitem__: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!")
    func(t._local_tensor, index, value)
