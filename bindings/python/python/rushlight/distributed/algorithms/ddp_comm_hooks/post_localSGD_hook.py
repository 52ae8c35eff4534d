"""Post-local SGD: from some iteration on gradients are averaged within a subgroup only, and parameters periodically."""

from __future__ import annotations

from ... import distributed_c10d as dist
from . import default_hooks

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """Settings of the hook, and the number of iterations so far. Without a subgroup ``new_subgroups()`` makes one per node."""

    def __init__(self, process_group, subgroup, start_localSGD_iter, post_local_gradient_allreduce=True):
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket):
        """Counts an iteration at its last bucket."""
        if bucket.is_last():
            self.iter += 1


def post_localSGD_hook(state, bucket):
    """Averages over all ranks at first, then over the subgroup, or not at all."""
    group = state.process_group if state.process_group is not None else dist.group.WORLD
    local = state.iter >= state.start_localSGD_iter
    state.maybe_increase_iter(bucket)
    if not local:
        return default_hooks.allreduce_hook(group, bucket)
    if not state.post_local_gradient_allreduce:
        return default_hooks.noop_hook(None, bucket)
    if state.subgroup is None:
        state.subgroup, _ = dist.new_subgroups()
    return default_hooks.allreduce_hook(state.subgroup, bucket)
