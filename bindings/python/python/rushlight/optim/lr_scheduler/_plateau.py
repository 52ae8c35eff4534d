"""A schedule by a metric."""

import math
import warnings

from ... import _C
from ._base import EPOCH_WARNING, LRScheduler, check_optimizer, copied, set_lr


class ReduceLROnPlateau(LRScheduler):
    """Times ``factor`` when a metric has not improved for more than ``patience`` epochs."""

    def __init__(
        self, optimizer, mode="min", factor=0.1, patience=10, threshold=1e-4, threshold_mode="rel", cooldown=0, min_lr=0, eps=1e-8,
    ):
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        check_optimizer(optimizer)
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.factor = factor
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != groups:
                raise ValueError(f"expected {groups} min_lrs, got {len(min_lr)}")
            self.default_min_lr, self.min_lrs = None, list(min_lr)
        else:
            self.default_min_lr, self.min_lrs = min_lr, [min_lr] * groups
        self.patience, self.cooldown, self.eps = patience, cooldown, eps
        self.last_epoch = 0
        self._last_lr = [copied(group["lr"]) for group in optimizer.param_groups]
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self._reset()

    def _reset(self):
        """Resets the metrics."""
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics, epoch=None):
        """Records the metric of an epoch."""
        _C._refuse_recording("lr_scheduler.step")
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn(EPOCH_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = epoch
        better = self.is_better(current, self.best)
        if better:
            self.best = current
        self.num_bad_epochs, self.cooldown_counter, reduce = _C._lr_patience(
            better, self.patience, self.cooldown, self.num_bad_epochs, self.cooldown_counter
        )
        if reduce:
            self._reduce_lr(epoch)
        self._last_lr = [copied(group["lr"]) for group in self.optimizer.param_groups]

    def _reduce_lr(self, epoch):
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError("The number of param groups in the `optimizer` differs from when `ReduceLROnPlateau` was initialized; "
                                   "give `min_lr` as one number")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, smallest in zip(groups, self.min_lrs):
            old = float(group["lr"])
            new = _C._lr_reduced(old, self.factor, smallest, self.eps)
            if new != old:
                set_lr(group, new)

    @property
    def in_cooldown(self):
        """Whether a reduction is too recent for another."""
        return self.cooldown_counter > 0

    def is_better(self, a, best):
        """Whether a metric is an improvement."""
        return _C._lr_is_better(self.mode, self.threshold_mode, self.threshold, a, best)
