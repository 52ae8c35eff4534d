"""Cyclic schedules: warm restarts, cycles, one cycle."""

import math
import types

from ... import _C
from ._base import LRScheduler, as_list, check_optimizer, set_lr


def _has_betas(optimizer):
    """Whether momentum is ``betas[0]``; an error if there is none to cycle."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    return "betas" in optimizer.defaults


def _set_momentum(group, value, use_beta1):
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that restarts after ``T_0`` epochs, each time ``T_mult`` times as long."""

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0, last_epoch=-1):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min, self.T_cur = T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        self._check_get_lr()
        return [_C._lr_cosine(base, self.eta_min, self.T_cur, self.T_i) for base in self.base_lrs]

    def step(self, epoch=None):
        """Advances to the next epoch, or to ``epoch``, which may be a fraction."""
        _C._refuse_recording("lr_scheduler.step")
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        given = epoch is not None
        if given and epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        t_cur, t_i = _C._lr_restarts(self.T_cur, self.T_i, self.T_0, self.T_mult, epoch)
        # As in PyTorch's state: whole numbers are ints, except for the position in a longer period.
        whole = float(t_cur).is_integer() and (not given or isinstance(epoch, int) and (self.T_mult == 1 or epoch < self.T_0))
        self.T_cur, self.T_i = int(t_cur) if whole else t_cur, int(t_i)
        epoch = epoch if given else self.last_epoch + 1
        self.last_epoch = math.floor(epoch)
        self._get_lr_called_within_step = True
        try:
            values = self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        for group, lr in zip(self.optimizer.param_groups, values):
            set_lr(group, lr)
        self._last_lr = self._group_lrs()


class CyclicLR(LRScheduler):
    """Cycles between two learning rates; momentum cycles inversely."""

    def __init__(
        self, optimizer, base_lr, max_lr, step_size_up=2000, step_size_down=None, mode="triangular", gamma=1.0, scale_fn=None,
        scale_mode="cycle", cycle_momentum=True, base_momentum=0.8, max_momentum=0.9, last_epoch=-1,
    ):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = as_list(optimizer, "base_lr", base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups):
                set_lr(group, lr)
        self.max_lrs = as_list(optimizer, "max_lr", max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up) + float(down)
        self.step_ratio = float(step_size_up) / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _has_betas(optimizer)
            self.base_momentums = as_list(optimizer, "base_momentum", base_momentum)
            self.max_momentums = as_list(optimizer, "max_momentum", max_momentum)
            if last_epoch == -1:
                for low, high, group in zip(self.base_momentums, self.max_momentums, optimizer.param_groups):
                    _set_momentum(group, high, self.use_beta1)
                    group["max_momentum"], group["base_momentum"] = high, low
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x):
        """The amplitude of a cycle (or an iteration)."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return _C._lr_cycle_scale(self.mode, x, self.gamma)

    def get_lr(self):
        self._check_get_lr()
        cycle, height = _C._lr_cycle(self.last_epoch, self.total_size, self.step_ratio)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for low, high, group in zip(self.base_momentums, self.max_momentums, self.optimizer.param_groups):
                _set_momentum(group, high - (high - low) * height * scale, self.use_beta1)
        return [base + (high - base) * height * scale for base, high in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self):
        """Everything except the optimizer. A scale function is saved only if it is an object: its attributes."""
        state = super().state_dict()
        custom = state.pop("_scale_fn_custom")
        state["_scale_fn_custom"] = None if custom is None or isinstance(custom, types.FunctionType) else custom.__dict__.copy()
        return state

    def load_state_dict(self, state_dict):
        """Restores a ``state_dict``."""
        state = dict(state_dict)
        kept = state.pop("_scale_fn_custom", None)
        if kept is not None:
            self._scale_fn_custom.__dict__.update(kept)
        super().load_state_dict(state)


class OneCycleLR(LRScheduler):
    """Rises to ``max_lr`` and falls far below the start over the whole training; momentum inversely. Stepped after each batch."""

    def __init__(
        self, optimizer, max_lr, total_steps=None, epochs=None, steps_per_epoch=None, pct_start=0.3, anneal_strategy="cos",
        cycle_momentum=True, base_momentum=0.85, max_momentum=0.95, div_factor=25.0, final_div_factor=1e4, three_phase=False, last_epoch=-1,
    ):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
            for name, value in [("epochs", epochs), ("steps_per_epoch", steps_per_epoch)]:
                if not isinstance(value, int) or value <= 0:
                    raise ValueError(f"Expected positive integer {name}, but got {value}")
            total_steps = epochs * steps_per_epoch
        if not isinstance(total_steps, int) or total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not isinstance(pct_start, (float, int)) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self.total_steps = total_steps

        def phase(end, start_lr, end_lr, start_momentum, end_momentum):
            return {
                "end_step": end, "start_lr": start_lr, "end_lr": end_lr, "start_momentum": start_momentum, "end_momentum": end_momentum,
            }

        up = float(pct_start * total_steps) - 1
        self._schedule_phases = [phase(up, "initial_lr", "max_lr", "max_momentum", "base_momentum")]
        if three_phase:
            self._schedule_phases += [
                phase(float(2 * pct_start * total_steps) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
                phase(total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
            ]
        else:
            self._schedule_phases.append(phase(total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum"))
        self._anneal_func_type = anneal_strategy
        if last_epoch == -1:
            for high, group in zip(as_list(optimizer, "max_lr", max_lr), optimizer.param_groups):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _has_betas(optimizer)
            if last_epoch == -1:
                highs = as_list(optimizer, "max_momentum", max_momentum)
                lows = as_list(optimizer, "base_momentum", base_momentum)
                for high, low, group in zip(highs, lows, optimizer.param_groups):
                    _set_momentum(group, high, self.use_beta1)
                    group["max_momentum"], group["base_momentum"] = high, low
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _annealing_cos(start, end, pct):
        return _C._lr_anneal("cos", start, end, pct)

    @staticmethod
    def _annealing_linear(start, end, pct):
        return _C._lr_anneal("linear", start, end, pct)

    def _anneal_func(self, start, end, part):
        # States of PyTorch before 1.13 have the function itself.
        kind = getattr(self, "_anneal_func_type", None)
        return self.anneal_func(start, end, part) if kind is None else _C._lr_anneal(kind, start, end, part)

    def get_lr(self):
        self._check_get_lr()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        at, part = _C._lr_phase(step, [phase["end_step"] for phase in self._schedule_phases])
        phase = self._schedule_phases[at]
        values = []
        for group in self.optimizer.param_groups:
            values.append(self._anneal_func(group[phase["start_lr"]], group[phase["end_lr"]], part))
            if self.cycle_momentum:
                momentum = self._anneal_func(group[phase["start_momentum"]], group[phase["end_momentum"]], part)
                _set_momentum(group, momentum, self.use_beta1)
        return values
