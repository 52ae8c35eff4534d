"""Gradients divided by the root of their squares: RMSprop, Adagrad, Adadelta."""

from .. import _C
from .optimizer import _ByFormula, _check_execution, _check_lr, _require

__all__ = ["Adadelta", "Adagrad", "RMSprop"]


class RMSprop(_ByFormula):
    """Divides by a running root mean square."""

    _formula = "RMSprop"

    def __init__(
        self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, capturable=False, foreach=None,
        maximize=False, differentiable=False,
    ):
        _check_lr(lr)
        _require(0.0 <= eps, "epsilon value", eps)
        _require(0.0 <= momentum, "momentum value", momentum)
        _require(0.0 <= weight_decay, "weight_decay value", weight_decay)
        _require(0.0 <= alpha, "alpha value", alpha)
        _check_execution(differentiable)
        super().__init__(params, dict(
            lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay, capturable=capturable,
            foreach=foreach, maximize=maximize, differentiable=differentiable,
        ))


class Adagrad(_ByFormula):
    """Divides by the root of the sum of all squares."""

    _formula = "Adagrad"

    def __init__(
        self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, foreach=None, *, maximize=False,
        differentiable=False, fused=None,
    ):
        _check_lr(lr)
        _require(0.0 <= lr_decay, "lr_decay value", lr_decay)
        _require(0.0 <= weight_decay, "weight_decay value", weight_decay)
        _require(0.0 <= initial_accumulator_value, "initial_accumulator_value value", initial_accumulator_value)
        _require(0.0 <= eps, "epsilon value", eps)
        _check_execution(differentiable, foreach, fused)
        super().__init__(params, dict(
            lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value,
            foreach=foreach, maximize=maximize, differentiable=differentiable, fused=fused,
        ))

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for p in group["params"]:
            total = _C._torch.full_like(p.detach(), group["initial_accumulator_value"])
            self.state[p] = {"step": _C.tensor(0.0, dtype=_C.float32), "sum": total}

    def share_memory(self):
        """Moves the state to memory shared with forked processes."""
        for kept in self.state.values():
            kept["sum"].share_memory_()

    def _sparse_step(self, group, parameter, gradient):
        if group["weight_decay"]:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        state = self.state[parameter]
        state["step"] += 1
        gradient = gradient.coalesce()
        rows, values = gradient.indices()[0], gradient.values()
        values = -values if group["maximize"] else values
        state["sum"].index_add_(0, rows, values * values)
        rate = float(group["lr"]) / (1 + (float(state["step"]) - 1) * group["lr_decay"])
        parameter.index_add_(0, rows, values / (state["sum"].index_select(0, rows).sqrt() + group["eps"]), alpha=-rate)


class Adadelta(_ByFormula):
    """Scales by the ratio of past updates to past gradients."""

    _formula = "Adadelta"

    def __init__(
        self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False, maximize=False,
        differentiable=False,
    ):
        _check_lr(lr)
        _require(0.0 <= rho <= 1.0, "rho value", rho)
        _require(0.0 <= eps, "epsilon value", eps)
        _require(0.0 <= weight_decay, "weight_decay value", weight_decay)
        _check_execution(differentiable)
        super().__init__(params, dict(
            lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, capturable=capturable, foreach=foreach,
            differentiable=differentiable,
        ))
