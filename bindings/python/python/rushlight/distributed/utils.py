"""``torch.distributed.utils``: the functions by which ``DistributedDataParallel`` and libraries like it compare and share states."""

from __future__ import annotations

from . import _group, _objects

__all__ = []


def _verify_param_shape_across_processes(process_group, tensors, logger=None):
    """Raises if the ranks' tensors differ in number, dtype or shape."""
    pg = _group._resolve(process_group)
    if pg.size() == 1:
        return
    own = [f"{t.dtype} {tuple(t.shape)}" for t in tensors]
    lists = [None] * pg.size()
    _objects.all_gather_object(lists, own, group=pg)
    ranks = _group.get_process_group_ranks(pg)
    for rank, other in zip(ranks, lists):
        if other != lists[0]:
            where = next((i for i, pair in enumerate(zip(lists[0], other)) if pair[0] != pair[1]), min(len(lists[0]), len(other)))
            first, theirs = (texts[where] if where < len(texts) else "nothing" for texts in (lists[0], other))
            raise RuntimeError(f"params[{where}] differ between ranks: rank {ranks[0]} has {first}, rank {rank} has {theirs}")


def _broadcast_coalesced(process_group, tensors, buffer_size, src=0):
    """Copies tensors of rank ``src`` of the group to all its ranks. ``buffer_size`` bounds PyTorch's buckets; nothing is copied to a bucket here."""
    if tensors and process_group.size() > 1:
        process_group._group.submit("broadcast", [t.detach() for t in tensors], [], ("sum", src), False)


def _sync_params_and_buffers(process_group, module_states, broadcast_bucket_size, src):
    """Copies the tensors of rank ``src`` of the group to all its ranks."""
    _broadcast_coalesced(_group._resolve(process_group), list(module_states), broadcast_bucket_size, src)


def _sync_module_states(module, process_group, broadcast_bucket_size, src, params_and_buffers_to_ignore, broadcast_buffers=True):
    """Copies a module's parameters and buffers of rank ``src`` of the group to all its ranks."""
    states = [p for name, p in module.named_parameters() if name not in params_and_buffers_to_ignore]
    if broadcast_buffers:
        states += [b for name, b in module.named_buffers() if name not in params_and_buffers_to_ignore]
    _sync_params_and_buffers(process_group, states, broadcast_bucket_size, src)
