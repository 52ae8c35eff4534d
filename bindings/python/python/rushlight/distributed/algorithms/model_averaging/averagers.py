"""Averages of parameters over the ranks, every N steps."""

from __future__ import annotations

from .... import _C
from ... import distributed_c10d as dist

__all__ = ["ModelAverager", "PeriodicModelAverager"]


class ModelAverager:
    """The base of averagers: a group and a count of steps."""

    def __init__(self, process_group=None):
        self.process_group = process_group if process_group is not None else dist.group.WORLD
        self.step = 0

    def average_parameters(self, params):
        """Counts a step, and averages every ``period`` steps."""
        raise NotImplementedError


def _tensors(params):
    """The parameters of a list or of an optimizer's groups, of those that have a gradient."""
    for entry in params:
        for p in entry["params"] if isinstance(entry, dict) else [entry]:
            if p.grad is not None:
                yield p


class PeriodicModelAverager(ModelAverager):
    """Averages every ``period`` steps, after ``warmup_steps``, during which gradients are averaged instead."""

    def __init__(self, period, warmup_steps=0, process_group=None):
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise ValueError("Arg ``period`` must be a positive value.")
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params):
        """Counts a step, and averages the parameters that have a gradient every ``period`` steps."""
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            before = _C._set_grad_enabled(False)
            try:
                for p in _tensors(params):
                    dist.all_reduce(p.detach(), op=dist.ReduceOp.AVG, group=self.process_group)
            finally:
                _C._set_grad_enabled(before)
        self.step += 1
