"""Schedules made of schedules."""

import warnings
from bisect import bisect_right

from ._base import LRScheduler, set_lr


def _check(schedulers, optimizer, name):
    for i, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
        if isinstance(scheduler, _plateau()) and name == "SequentialLR":
            raise ValueError(f"{name} does not support `ReduceLROnPlateau` scheduler, whose step needs a metric, but got one at index {i}")
        if scheduler.optimizer is not optimizer:
            raise ValueError(f"{name} expects all schedulers to belong to the same optimizer, but got scheduler {type(scheduler).__name__} "
                             f"at index {i} with another optimizer.")


def _plateau():
    from ._plateau import ReduceLROnPlateau

    return ReduceLROnPlateau


class _Composed(LRScheduler):
    def state_dict(self):
        """Everything except the optimizer; nested schedules as their own state."""
        state = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [s.state_dict() for s in self._schedulers]
        return state

    def load_state_dict(self, state_dict):
        """Restores a ``state_dict``."""
        state = dict(state_dict)
        for scheduler, kept in zip(self._schedulers, state.pop("_schedulers")):
            scheduler.load_state_dict(kept)
        self.__dict__.update(state)


class SequentialLR(_Composed):
    """Schedules in sequence; the next one starts at each milestone."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        _check(schedulers, optimizer, "SequentialLR")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone points, but got "
                f"number of schedulers {len(schedulers)} and the number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Undoes the initial steps of the schedules, then starts the first.
        for group in optimizer.param_groups:
            set_lr(group, group["initial_lr"])
        for scheduler in self._schedulers:
            _rewind(scheduler)
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self):
        """Advances to the next epoch."""
        self.last_epoch += 1
        at = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[at]
        if at > 0 and self._milestones[at - 1] == self.last_epoch:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scheduler._update_lr(0) if not isinstance(scheduler, SequentialLR) else scheduler.step()
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _rewind(scheduler):
    parts = getattr(scheduler, "_schedulers", None)
    for part in parts or ():
        _rewind(part)
    # Those in a chain count, not the chain.
    if parts is None or isinstance(scheduler, SequentialLR):
        scheduler.last_epoch -= 1


class ChainedScheduler(_Composed):
    """Several schedules at once, each applied to the result of the previous one."""

    def __init__(self, schedulers, optimizer=None):
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        _check(schedulers, optimizer, "ChainedScheduler")
        self._schedulers = list(schedulers)
        self.optimizer = optimizer
        self._last_lr = self._group_lrs()

    def step(self):
        """Advances to the next epoch."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._group_lrs()
