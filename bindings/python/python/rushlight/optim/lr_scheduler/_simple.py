"""Schedules by formula. The formulas are Rust's (`rushlight-optim`); options and state are attributes, as in PyTorch."""

import types
from collections import Counter

from ... import _C
from ._base import LRScheduler


class _ByFunction(LRScheduler):
    """A schedule given by Python functions of the epoch, one for all groups or one for each."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        self.optimizer = optimizer
        groups = len(getattr(optimizer, "param_groups", ()))
        if isinstance(lr_lambda, (list, tuple)):
            if len(lr_lambda) != groups:
                raise ValueError(f"Expected {groups} lr_lambdas, but got {len(lr_lambda)}")
            self.lr_lambdas = list(lr_lambda)
        else:
            self.lr_lambdas = [lr_lambda] * groups
        super().__init__(optimizer, last_epoch)

    def state_dict(self):
        """Everything except the optimizer. Functions are saved only if they are objects: their attributes."""
        state = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [None if isinstance(f, types.FunctionType) else f.__dict__.copy() for f in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict):
        """Restores a ``state_dict``."""
        state = dict(state_dict)
        for function, kept in zip(self.lr_lambdas, state.pop("lr_lambdas")):
            if kept is not None:
                function.__dict__.update(kept)
        self.__dict__.update(state)


class LambdaLR(_ByFunction):
    """The first learning rate times a function of the epoch."""

    def get_lr(self):
        self._check_get_lr()
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs)]


class MultiplicativeLR(_ByFunction):
    """The last learning rate times a function of the epoch."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        for function in lr_lambda if isinstance(lr_lambda, (list, tuple)) else [lr_lambda]:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, lr_lambda, last_epoch)

    def get_lr(self):
        self._check_get_lr()
        if self._is_initial:
            return self._group_lrs()
        return [lr * f(self.last_epoch) for f, lr in zip(self.lr_lambdas, self._group_lrs())]


class _ByFormula(LRScheduler):
    """A schedule whose learning rates Rust computes; ``_formula`` names it."""

    def get_lr(self):
        self._check_get_lr()
        return _C._lr_chained(
            self._formula, self.__dict__, self.last_epoch, self._is_initial, self.base_lrs, self._group_lrs()
        )

    def _get_closed_form_lr(self):
        return _C._lr_closed_form(self._formula, self.__dict__, self.last_epoch, self.base_lrs)


class StepLR(_ByFormula):
    """Times ``gamma`` every ``step_size`` epochs."""

    _formula = "StepLR"

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)


class MultiStepLR(_ByFormula):
    """Times ``gamma`` at each milestone."""

    _formula = "MultiStepLR"

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)


class ConstantLR(_ByFormula):
    """Times ``factor`` for the first ``total_iters`` epochs."""

    _formula = "ConstantLR"

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1):
        if not 0 <= factor <= 1.0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)


class LinearLR(_ByFormula):
    """Times a factor that changes linearly from one value to another."""

    _formula = "LinearLR"

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        if not 0 < start_factor <= 1.0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if not 0 <= end_factor <= 1.0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)


class ExponentialLR(_ByFormula):
    """Times ``gamma`` every epoch."""

    _formula = "ExponentialLR"

    def __init__(self, optimizer, gamma, last_epoch=-1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)


class PolynomialLR(_ByFormula):
    """Decays to zero as a power of the remaining fraction of ``total_iters``."""

    _formula = "PolynomialLR"

    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)


class CosineAnnealingLR(_ByFormula):
    """Along half a cosine from the first learning rate to ``eta_min`` in ``T_max`` epochs, and back."""

    _formula = "CosineAnnealingLR"

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)
