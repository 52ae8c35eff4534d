"""``loss_parallel``: cross-entropy of class scores that are split over the ranks, without gathering them."""

import contextlib

from .... import _C
from .._api import DTensor
from ..placement_types import Replicate, _codes

__all__ = ["loss_parallel"]

_depth = 0


def enabled():
    return _depth > 0


@contextlib.contextmanager
def loss_parallel():
    """Within, ``cross_entropy`` of scores sharded along the classes computes on the shards."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


def vocabulary_loss(scores, target, rest, kwargs):
    """Cross-entropy of scores of shape (N, C) or (N, C, ...) that are sharded along C."""
    from ... import ReduceOp, all_reduce

    reduction, ignored = kwargs.get("reduction", "mean"), kwargs.get("ignore_index", -100)
    extra = {k: v for k, v in kwargs.items() if k not in ("reduction", "ignore_index", "target", "input") and v not in (None, 0.0)}
    if extra or any(v is not None for v in rest):
        raise NotImplementedError(f"cross_entropy under loss_parallel: {', '.join(extra) or 'weights'} not supported; use reduction and ignore_index only")
    mesh, shape = scores._mesh, scores._shape
    if any(not (p.is_shard(1) or p.is_replicate()) for p in scores._placements):
        raise NotImplementedError(f"cross_entropy under loss_parallel: scores placed {scores._placements}; shard the classes only, or use full_tensor()")
    dims = [i for i, p in enumerate(scores._placements) if p.is_shard(1)]
    if isinstance(target, DTensor):
        target = target.full_tensor()
    local = scores._local_tensor
    start, size = _C._local_part(list(shape), mesh._core, _codes(scores._placements))[1]

    def combined(tensor, op):
        for dim in dims:
            all_reduce(tensor, op, group=mesh.get_group(dim))
        return tensor

    # The sum over ranks, recorded: its gradient is that of every rank's part.
    def total(tensor):
        placed = ["Psum" if i in dims else "R" for i in range(mesh.ndim)]
        return _C._redistribute(tensor, mesh._core, list(tensor.shape), placed, ["R"] * mesh.ndim)

    largest = combined(local.detach().amax(1) if size else local.new_full((local.shape[0], *local.shape[2:]), float("-inf")), ReduceOp.MAX)
    normaliser = total((local - largest.unsqueeze(1)).exp().sum(1)).log() + largest
    index = target - start
    inside = (index >= 0) & (index < size) & (target != ignored)
    # A rank without classes adds zeros.
    here = local.gather(1, index.clamp(0, size - 1).unsqueeze(1)).squeeze(1) if size else local.sum(1)
    picked = total(here * inside.to(local.dtype))
    counted = (target != ignored).to(local.dtype)
    losses = (normaliser - picked) * counted
    if reduction != "none":
        losses = losses.sum()
        if reduction == "mean":
            losses = losses / counted.sum()
    return DTensor._of(losses, mesh, (Replicate(),) * mesh.ndim, losses.shape)
