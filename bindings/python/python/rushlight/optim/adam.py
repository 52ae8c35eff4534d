"""Adam and its relatives: averages of the gradient and of its square."""

from .optimizer import _ByFormula, _check_adam, _check_execution, _require

__all__ = ["Adam", "AdamW", "Adamax", "NAdam", "RAdam"]


class Adam(_ByFormula):
    """Adam. Weight decay is part of the gradient unless decoupled."""

    _formula = "Adam"

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None, maximize=False,
        capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False,
    ):
        _check_adam(lr, betas, eps, weight_decay, foreach, capturable)
        _check_execution(differentiable, foreach, fused)
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize, foreach=foreach,
            capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=decoupled_weight_decay,
        ))


class AdamW(Adam):
    """Adam with decoupled weight decay: parameters shrink independently of the gradient."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False, foreach=None,
        capturable=False, differentiable=False, fused=None,
    ):
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


class NAdam(_ByFormula):
    """Adam with Nesterov's momentum."""

    _formula = "NAdam"

    def __init__(
        self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3, decoupled_weight_decay=False, *,
        foreach=None, maximize=False, capturable=False, differentiable=False,
    ):
        _check_adam(lr, betas, eps, weight_decay)
        _require(0.0 <= momentum_decay, "momentum_decay value", momentum_decay)
        _check_execution(differentiable)
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
            differentiable=differentiable,
        ))


class RAdam(_ByFormula):
    """Adam whose first steps are rectified for the small number of squares seen."""

    _formula = "RAdam"

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *, foreach=None,
        maximize=False, capturable=False, differentiable=False,
    ):
        _check_adam(lr, betas, eps, weight_decay)
        _check_execution(differentiable)
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
            decoupled_weight_decay=decoupled_weight_decay, differentiable=differentiable,
        ))


class Adamax(_ByFormula):
    """Adam with the infinity norm in place of squares."""

    _formula = "Adamax"

    def __init__(
        self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False, differentiable=False,
        capturable=False,
    ):
        _check_adam(lr, betas, eps, weight_decay)
        _check_execution(differentiable)
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable,
        ))
