"""DeepSpeed's schedules of learning rates."""

from __future__ import annotations

import math


class _Schedule:
    def __init__(self, optimizer, last_batch_iteration=-1):
        self.optimizer, self.last_batch_iteration = optimizer, last_batch_iteration
        self._set()

    def _set(self):
        self._last_lr = self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, self._last_lr):
            group["lr"] = rate

    def step(self, last_batch_iteration=None):
        """Goes to the next iteration."""
        self.last_batch_iteration = self.last_batch_iteration + 1 if last_batch_iteration is None else last_batch_iteration
        self._set()

    def get_last_lr(self):
        """The rates that are in use."""
        return self._last_lr

    def state_dict(self):
        """The iteration."""
        return {"last_batch_iteration": self.last_batch_iteration}

    def load_state_dict(self, state):
        """Continues at an iteration."""
        self.last_batch_iteration = state["last_batch_iteration"]
        self._set()


def _each(optimizer, value):
    return list(value) if isinstance(value, (list, tuple)) else [value] * len(optimizer.param_groups)


class WarmupLR(_Schedule):
    """From a minimum to a maximum, by the logarithm of the iteration or linearly; then constant."""

    def __init__(self, optimizer, warmup_min_lr=0.0, warmup_max_lr=0.001, warmup_num_steps=1000, warmup_type="log", last_batch_iteration=-1):
        if warmup_type not in ("log", "linear"):
            raise ValueError(f"{type(self).__name__}: warmup_type should be 'log' or 'linear', got {warmup_type!r}")
        self.warmup_num_steps, self.warmup_type = max(2, warmup_num_steps), warmup_type
        self.min_lrs, self.max_lrs = _each(optimizer, warmup_min_lr), _each(optimizer, warmup_max_lr)
        super().__init__(optimizer, last_batch_iteration)

    def _after(self):
        return 1.0

    def _gamma(self):
        if self.last_batch_iteration < self.warmup_num_steps:
            if self.warmup_type == "log":
                return math.log(self.last_batch_iteration + 1) / math.log(self.warmup_num_steps)
            return self.last_batch_iteration / self.warmup_num_steps
        return self._after()

    def get_lr(self):
        """The rates of this iteration."""
        if self.last_batch_iteration < 0:
            return list(self.min_lrs)
        gamma = self._gamma()
        return [low + (high - low) * gamma for low, high in zip(self.min_lrs, self.max_lrs)]


class WarmupDecayLR(WarmupLR):
    """``WarmupLR``, then linearly to the minimum."""

    def __init__(self, optimizer, total_num_steps, warmup_min_lr=0.0, warmup_max_lr=0.001, warmup_num_steps=1000, warmup_type="log", last_batch_iteration=-1):
        self.total_num_steps = total_num_steps
        super().__init__(optimizer, warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type, last_batch_iteration)

    def _after(self):
        return max(0.0, (self.total_num_steps - self.last_batch_iteration) / max(1.0, self.total_num_steps - self.warmup_num_steps))


class WarmupCosineLR(_Schedule):
    """A share of the optimizer's rates: warmup, then a cosine."""

    def __init__(self, optimizer, total_num_steps, warmup_min_ratio=0.0, warmup_num_steps=1000, cos_min_ratio=0.0001, warmup_type="log", last_batch_iteration=-1):
        self.total_num_steps, self.cos_min_ratio, self.warmup_type = total_num_steps, cos_min_ratio, warmup_type
        self.warmup_min_ratio, self.warmup_num_steps = warmup_min_ratio, max(2, warmup_num_steps)
        self.org_lrs = [group["lr"] for group in optimizer.param_groups]
        super().__init__(optimizer, last_batch_iteration)

    def get_lr_ratio(self):
        """The share of this iteration."""
        step = self.last_batch_iteration
        if step < 0:
            return 0.0
        if step < self.warmup_num_steps:
            part = math.log(step + 1) / math.log(self.warmup_num_steps) if self.warmup_type == "log" else step / self.warmup_num_steps
            return self.warmup_min_ratio + (1.0 - self.warmup_min_ratio) * part
        done, whole = step - self.warmup_num_steps + 1, self.total_num_steps - self.warmup_num_steps
        part = (1 + math.cos(math.pi * done / whole)) / 2
        return max(0.0, self.cos_min_ratio + (1.0 - self.cos_min_ratio) * part)

    def get_lr(self):
        """The rates of this iteration."""
        return [rate * self.get_lr_ratio() for rate in self.org_lrs]


SCHEDULES = {one.__name__: one for one in (WarmupLR, WarmupDecayLR, WarmupCosineLR)}
