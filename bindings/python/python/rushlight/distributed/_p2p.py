"""Sends and receives between two ranks.

A send starts at once. A receive starts when the program waits for it: messages that arrive earlier are stored, and collectives in between do not
queue behind a later message. Receives from one rank with one tag start in the order of their calls.
"""

from __future__ import annotations

from ._collectives import _one, _root
from ._group import _not_member, _rank_not_in_group, _resolve, get_global_rank
from ._work import Work, _Done

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


class _Receive:
    """The core's side of a receive that starts when it is waited for. Its ``peer`` is None if any rank may send; after the wait it is the sender."""

    def __init__(self, pg, tensor, peer, tag):
        self._pg, self._tensor, self.peer, self.tag, self._work = pg, tensor, peer, tag, None
        pg._receives.append(self)

    def _start(self):
        if self._work is not None:
            return
        if self.peer is None:
            _begin_receives(self._pg, None, self.tag, self)
            self._pg._receives.remove(self)
            self._work, self._tensor = self._pg._group.recv_any(self._tensor, self.tag, True), None
            return
        waiting = self._pg._receives
        upto = waiting.index(self) + 1
        first = [r for r in waiting[:upto] if (r.peer, r.tag) == (self.peer, self.tag)]
        self._pg._receives = [r for r in waiting if r not in first]
        work = self._pg._group.p2p([(r._tensor, r.peer, r.tag, False) for r in first], True)
        for receive in first:
            receive._work, receive._tensor = work, None

    def wait(self, timeout=None):
        self._start()
        self._work.wait(timeout)
        self._name_sender()

    def is_completed(self):
        self._start()
        done = self._work.is_completed()
        if done:
            self._name_sender()
        return done

    def _name_sender(self):
        if self.peer is None:
            self.peer = self._work.source()


def _begin_receives(pg, peer, tag, before=None):
    """Starts earlier receives first, so that messages keep their order."""
    listed = pg._receives[: pg._receives.index(before)] if before else pg._receives
    for receive in [r for r in listed if (r.peer, r.tag) == (peer, tag)]:
        receive._start()


def _tag(tag, call):
    if not 0 <= tag < 2**32:
        raise ValueError(f"{call}: the tag {tag} should be between 0 and {2**32 - 1}")
    return tag


def _source(pg, src, group_src, call):
    """The sender, or None for any rank."""
    if src is None and group_src is None:
        return None
    return _root(pg, src, group_src, "src", call)


def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Starts to send a tensor."""
    _one(tensor, "tensor", "isend")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("isend")
    peer = _root(pg, dst, group_dst, "dst", "isend")
    return Work(pg._group.p2p([(tensor, peer, _tag(tag, "isend"), True)], True), [tensor])


def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    """Posts a receive, from any rank if none is named. The tensor is complete after ``wait`` of the returned handle."""
    _one(tensor, "tensor", "irecv")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("irecv")
    return Work(_Receive(pg, tensor, _source(pg, src, group_src, "irecv"), _tag(tag, "irecv")), [tensor])


def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Sends a tensor to a rank, which must receive one of the same size with the same tag."""
    _one(tensor, "tensor", "send")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("send")
    pg._group.p2p([(tensor, _root(pg, dst, group_dst, "dst", "send"), _tag(tag, "send"), True)], False)
    return None


def recv(tensor, src=None, group=None, tag=0, group_src=None):
    """Receives a tensor from a rank, any if none is named; returns the sender."""
    _one(tensor, "tensor", "recv")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        _not_member("recv")
        return -1
    peer = _source(pg, src, group_src, "recv")
    _begin_receives(pg, peer, _tag(tag, "recv"))
    if peer is None:
        return get_global_rank(pg, pg._group.recv_any(tensor, tag, False).source())
    pg._group.p2p([(tensor, peer, tag, False)], False)
    return get_global_rank(pg, peer)


class P2POp:
    """A send or a receive of ``batch_isend_irecv``: ``op`` is ``isend`` or ``irecv``."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        _one(tensor, "tensor", "P2POp")
        self.op, self.tensor, self.tag = op, tensor, _tag(tag, "P2POp")
        self.group = _resolve(group)
        self.group_peer = -1 if _rank_not_in_group(self.group) else _root(self.group, peer, group_peer, "peer", "P2POp")
        self.peer = peer if peer is not None else get_global_rank(self.group, self.group_peer)

    def __repr__(self):
        return f"P2POp({self.op.__name__}, peer={self.peer}, tag={self.tag}, shape={tuple(self.tensor.shape)})"


def batch_isend_irecv(p2p_op_list):
    """Starts sends and receives that run concurrently. Returns a list with one handle for all of them."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    groups = {id(op.group): op.group for op in p2p_op_list}
    if len(groups) > 1:
        raise ValueError("All ops need to use the same group.")
    for pg in groups.values():
        if _rank_not_in_group(pg):
            _not_member("batch_isend_irecv")
            return []
        ops = [(op.tensor, op.group_peer, op.tag, op.op is isend) for op in p2p_op_list]
        return [Work(pg._group.p2p(ops, True), [op.tensor for op in p2p_op_list])]
    return [Work(_Done(), [])]
