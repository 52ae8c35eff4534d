"""Averaged stochastic gradient descent."""

from .optimizer import _ByFormula, _check_execution, _check_lr, _require

__all__ = ["ASGD"]


class ASGD(_ByFormula):
    """Gradient descent whose result is the average over time, ``state[p]["ax"]``."""

    _formula = "ASGD"

    def __init__(
        self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False, differentiable=False,
        capturable=False,
    ):
        _check_lr(lr)
        _require(0.0 <= weight_decay, "weight_decay value", weight_decay)
        _check_execution(differentiable)
        super().__init__(params, dict(
            lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable,
        ))
