"""Norms over the parts of distributed tensors."""

from ... import _C
from .placement_types import Replicate


def total_norm(tensors, p):
    """The norm of all elements of all tensors, as a replicated DTensor on the mesh of the first that has one."""
    from .. import ReduceOp, all_reduce
    from ._api import DTensor

    groups, plain = {}, []
    for t in tensors:
        if isinstance(t, DTensor):
            if any(placement.is_partial() for placement in t._placements):
                t = t.redistribute(placements=[Replicate() if q.is_partial() else q for q in t._placements])
            groups.setdefault((t._mesh, t._placements), []).append(t._local_tensor)
        else:
            plain.append(t)
    powers = []
    for (mesh, placements), locals_ in groups.items():
        norm = _C._foreach_total_norm(locals_, p)
        power = norm if p == float("inf") else norm**p
        for dim, placement in enumerate(placements):
            if placement.is_shard():
                all_reduce(power, ReduceOp.MAX if p == float("inf") else ReduceOp.SUM, group=mesh.get_group(dim))
        powers.append(power)
    if plain:
        norm = _C._foreach_total_norm(plain, p)
        powers.append(norm if p == float("inf") else norm**p)
    together = _C._torch.stack(powers)
    total = together.max() if p == float("inf") else together.sum() ** (1.0 / p)
    mesh = next(iter(groups))[0]
    return DTensor._of(total, mesh, (Replicate(),) * mesh.ndim, ())
