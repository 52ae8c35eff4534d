"""Base class of schedules: epochs, the optimizer's learning rates, state.

It is Python because users and libraries subclass it, and because ``state_dict`` is the object's ``__dict__``. Formulas are Rust's.
"""

import warnings

from ... import _C
from ..optimizer import Optimizer

EPOCH_WARNING = (
    "scheduler.step(epoch) is deprecated: call scheduler.step() once an epoch. A given epoch sets the learning rate by the schedule's closed "
    "form, where it has one, whatever other schedules have done to it."
)


def check_optimizer(optimizer):
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def set_lr(group, lr, key="lr"):
    """Sets a group's learning rate; one that is a tensor stays the same tensor."""
    if isinstance(group[key], _C.Tensor):
        group[key].fill_(float(lr))
    else:
        group[key] = lr


def as_list(optimizer, name, value):
    """One value per group."""
    if isinstance(value, (list, tuple)):
        if len(value) != len(optimizer.param_groups):
            raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
                             f"param_groups has {len(optimizer.param_groups)}.")
    else:
        value = [value] * len(optimizer.param_groups)
    return list(map(copied, value))


def copied(lr):
    """A tensor is copied: a group's learning rate changes in place."""
    return lr.clone() if isinstance(lr, _C.Tensor) else lr


class LRScheduler:
    """Base class of schedules. A subclass defines ``get_lr``, which returns one learning rate per group from ``self.last_epoch``,
    ``self.base_lrs`` and ``self.optimizer``."""

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer, last_epoch=-1):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with last_epoch >= 0; load the "
                    "optimizer's state dict first, or start with last_epoch=-1"
                )
        self.base_lrs = [copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self):
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self):
        """Everything except the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict):
        """Restores a ``state_dict``."""
        self.__dict__.update(state_dict)

    def get_last_lr(self):
        """The learning rates that were set last."""
        return self._last_lr

    def get_lr(self):
        """The learning rates of ``last_epoch``."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr(): a subclass of LRScheduler must write one")

    def step(self, epoch=None):
        """Advances to the next epoch."""
        _C._refuse_recording("lr_scheduler.step")
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first learning rate of the schedule is never used so. "
                "Call `optimizer.step()` first. See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
                UserWarning, stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch=None):
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", None)
                values = self.get_lr() if closed is None else closed()
        finally:
            self._get_lr_called_within_step = False
        for group, lr in zip(self.optimizer.param_groups, values):
            set_lr(group, lr)
        self._last_lr = [copied(group["lr"]) for group in self.optimizer.param_groups]

    def _check_get_lr(self):
        if not self._get_lr_called_within_step:
            warnings.warn("get_lr() computes what the next step sets; `get_last_lr()` gives the learning rates that hold now.", UserWarning, stacklevel=3)

    def _group_lrs(self):
        return [copied(group["lr"]) for group in self.optimizer.param_groups]
