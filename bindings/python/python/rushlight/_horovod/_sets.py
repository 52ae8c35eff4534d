"""Process sets: groups of processes, by Horovod's interface."""

from __future__ import annotations

from .. import distributed as dist


def _ready():
    if not dist.is_initialized():
        raise ValueError("Horovod has not been initialized; use hvd.init().")


class ProcessSet:
    """Some of the processes. ``add_process_set`` makes it known to all of them."""

    def __init__(self, ranks_or_comm=None):
        self.ranks = None if ranks_or_comm is None else sorted(ranks_or_comm)
        self.process_set_id, self._made = None, None

    def _group(self):
        """The group of a collective."""
        _ready()
        if self is global_process_set:
            return None
        if self._made is None:
            raise ValueError("this process set is not known; hvd.add_process_set makes it known to all processes")
        if not self.included():
            raise ValueError(f"rank {dist.get_rank()} is not in the process set {self.ranks}")
        return self._made

    def included(self):
        """Whether this process is in the set."""
        _ready()
        return self is global_process_set or dist.get_rank() in (self.ranks or ())

    def size(self):
        """Number of processes."""
        _ready()
        return dist.get_world_size() if self is global_process_set else len(self.ranks)

    def rank(self):
        """The place of this process in the set."""
        _ready()
        return dist.get_rank() if self is global_process_set else self.ranks.index(dist.get_rank())

    def __repr__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


global_process_set = ProcessSet()
global_process_set.process_set_id = 0

_known = {}


def add_process_set(process_set):
    """Makes a set known: every process calls this, with the same ranks. Returns the set."""
    _ready()
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if any(known.ranks == made.ranks for known in _known.values()):
        raise ValueError(f"a process set with the ranks {made.ranks} exists already")
    made._made = dist.new_group(made.ranks)
    made.process_set_id = max(_known, default=0) + 1
    _known[made.process_set_id] = made
    return made


def remove_process_set(process_set):
    """Forgets a set. Returns whether it was known."""
    _ready()
    if process_set.process_set_id not in _known:
        return False
    del _known[process_set.process_set_id]
    dist.destroy_process_group(process_set._made)
    process_set._made = process_set.process_set_id = None
    return True


def _forget():
    """Called when the job ends: its groups are gone."""
    for known in _known.values():
        known._made = known.process_set_id = None
    _known.clear()
