"""Distribution of a dataset over processes."""

import math

from ... import _C
from .sampler import Sampler

__all__ = ["DistributedSampler"]


def _group():
    from ... import distributed

    return distributed


class DistributedSampler(Sampler):
    """Every ``num_replicas``-th sample of an order that all processes share: PyTorch's for the same seed. ``set_epoch`` makes another.

    ``state_dict`` and ``load_state_dict`` have a job go on in the middle of an epoch, also with another number of processes: they share what is
    left of the epoch's order, so that each sample is read once."""

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        if num_replicas is None:
            num_replicas = _group().get_world_size()
        if rank is None:
            rank = _group().get_rank()
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.epoch, self.drop_last, self.shuffle, self.seed = 0, drop_last, shuffle, seed
        if drop_last and len(dataset) % num_replicas != 0:
            self.num_samples = math.ceil((len(dataset) - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(len(dataset) / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self._start, self._resumed_epoch = 0, None

    def __iter__(self):
        count = len(self.dataset)
        indices = _C._permutation(count, (self.seed + self.epoch) & 0xFFFFFFFFFFFFFFFF) if self.shuffle else list(range(count))
        if not self.drop_last and indices:
            # Some samples are repeated so that all processes have the same number.
            while len(indices) < self.total_size:
                indices += indices[: self.total_size - len(indices)]
        if self._resumed_epoch == self.epoch and self._start:
            return iter(self._rest(indices[:count]))
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def _rest(self, order):
        left = order[self._start :]
        each = len(left) // self.num_replicas if self.drop_last else math.ceil(len(left) / self.num_replicas)
        left += order[: max(0, each * self.num_replicas - len(left))]
        return left[self.rank : each * self.num_replicas : self.num_replicas]

    def state_dict(self, samples=0):
        """The place in the epoch, after this process has used ``samples`` samples since it began or resumed. All processes must have used as many."""
        start = self._start if self._resumed_epoch == self.epoch else 0
        taken = min(start + samples * self.num_replicas, len(self.dataset))
        return {"epoch": self.epoch, "seed": self.seed, "samples": len(self.dataset), "taken": taken}

    def load_state_dict(self, state):
        """Continues at a position that was saved with any number of processes."""
        if state["samples"] != len(self.dataset):
            raise ValueError(f"the state was saved with a dataset of {state['samples']} samples, this one has {len(self.dataset)}")
        self.epoch, self.seed = state["epoch"], state["seed"]
        self._start, self._resumed_epoch = state["taken"], state["epoch"]

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """Sets the epoch, from which the order derives, so that it differs between epochs and is equal in all processes."""
        self.epoch = epoch
