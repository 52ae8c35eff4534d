"""Collectives on Python objects, which are sent as pickles.

Unpickling runs code that the sender chooses. Every object carries a seal of its sender under the job's secret, which is checked before it is unpickled:
only processes of the job can send one, and those run the same user's program anyway.
"""

from __future__ import annotations

import pickle

from .. import _C
from ._collectives import _root
from ._group import _not_member, _rank_not_in_group, _resolve, get_global_rank

__all__ = ["all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list", "send_object_list"]


def _dump(obj):
    return pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)


def _fill(target, values, call):
    if not isinstance(target, list) or len(target) != len(values):
        raise ValueError(f"{call}: expected a list of {len(values)} objects")
    target[:] = values


def all_gather_object(object_list, obj, group=None):
    """Fills a list with every rank's object."""
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("all_gather_object")
    if not isinstance(object_list, list) or len(object_list) != pg.size():
        raise ValueError(f"all_gather_object: object_list should be a list of {pg.size()}, one for each rank")
    _fill(object_list, [pickle.loads(data) for data in pg._group.all_gather_object(_dump(obj))], "all_gather_object")
    return None


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
    """Fills a list with the objects of rank ``src``, 0 by default. ``device`` has no effect: PyTorch stages bytes there, Rushlight does not."""
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("broadcast_object_list")
    root = 0 if src is None and group_src is None else _root(pg, src, group_src, "src", "broadcast_object_list")
    data = pg._group.broadcast_object(_dump(list(object_list)) if pg.rank() == root else None, root)
    if pg.rank() != root:
        _fill(object_list, pickle.loads(data), "broadcast_object_list")
    return None


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    """Fills rank ``dst``'s list with every rank's object."""
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("gather_object")
    root = 0 if dst is None and group_dst is None else _root(pg, dst, group_dst, "dst", "gather_object")
    if pg.rank() == root and (not isinstance(object_gather_list, list) or len(object_gather_list) != pg.size()):
        raise ValueError(f"Argument ``object_gather_list`` must be a list of {pg.size()} objects on destination rank.")
    if pg.rank() != root and object_gather_list:
        raise ValueError("Argument ``object_gather_list`` must NOT be specified on non-destination ranks.")
    found = pg._group.gather_object(_dump(obj), root)
    if found is not None:
        _fill(object_gather_list, [pickle.loads(data) for data in found], "gather_object")
    return None


def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None):
    """Writes this rank's object of rank ``src``'s list to the first element of a list."""
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("scatter_object_list")
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = 0 if src is None and group_src is None else _root(pg, src, group_src, "src", "scatter_object_list")
    inputs = [_dump(obj) for obj in scatter_object_input_list or ()] if pg.rank() == root else None
    scatter_object_output_list[0] = pickle.loads(pg._group.scatter_object(inputs, root))
    return None


def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False):
    """Sends a list of objects to a rank, which must call ``recv_object_list``."""
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("send_object_list")
    pg._group.send_object(_dump(list(object_list)), _root(pg, dst, group_dst, "dst", "send_object_list"), 0)
    return None


def recv_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False):
    """Fills a list with the objects that a rank sends; returns the sender."""
    from ._p2p import _begin_receives, _source

    pg = _resolve(group)
    if _rank_not_in_group(pg):
        _not_member("recv_object_list")
        return -1
    peer = _source(pg, src, group_src, "recv_object_list")
    _begin_receives(pg, peer, 0)
    _fill(object_list, pickle.loads(pg._group.recv_object(peer, 0)), "recv_object_list")
    return get_global_rank(pg, peer)


def _object_to_tensor(obj, device=None, group=None):
    """An object's pickle as a tensor of bytes, and its length."""
    data = _dump(obj)
    made = _C.frombuffer(bytearray(data), dtype=_C.uint8)
    return made.to(device) if device is not None else made, _C.tensor([len(data)], dtype=_C.int64)


def _tensor_to_object(tensor, tensor_size, group=None):
    """The object of such a tensor."""
    return pickle.loads(bytes(tensor.cpu().tolist()[: int(tensor_size)]))
