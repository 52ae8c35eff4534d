"""Resilient backpropagation: steps by the gradient's sign."""

from .optimizer import _ByFormula, _check_execution, _check_lr, _require

__all__ = ["Rprop"]


class Rprop(_ByFormula):
    """Every element has its own step size, which grows while the gradient keeps its sign and shrinks when the sign changes."""

    _formula = "Rprop"

    def __init__(
        self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, capturable=False, foreach=None, maximize=False,
        differentiable=False,
    ):
        _check_lr(lr)
        _require(0.0 < etas[0] < 1.0 < etas[1], "eta values", f"{etas[0]}, {etas[1]}")
        _check_execution(differentiable)
        super().__init__(params, dict(
            lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize, differentiable=differentiable,
            capturable=capturable,
        ))
