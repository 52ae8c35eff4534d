"""Averaged stochastic gradient descent."""

from .. import _C
from ..autograd.grad_mode import no_grad
from .optimizer import Optimizer, _call, _check_execution, _check_lr, _require

__all__ = ["ASGD"]


class ASGD(Optimizer):
    """Gradient descent whose average over time, ``state[p]["ax"]``, is the result."""

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

    @no_grad()
    def step(self, closure=None):
        """One step over all parameters that have a gradient."""
        _C._refuse_recording("ASGD.step")
        loss = None if closure is None else _call(closure)
        for group in self.param_groups:
            lr, lambd = float(group["lr"]), group["lambd"]
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                kept = self.state[p]
                if not kept:
                    number = lambda value: _C.tensor(value, dtype=_C.float32)
                    kept.update(step=number(0.0), eta=number(lr), mu=number(1.0), ax=_C._torch.zeros_like(p))
                if group["maximize"]:
                    grad = -grad
                if group["weight_decay"] != 0:
                    grad = grad.add(p, alpha=group["weight_decay"])
                eta, mu = kept["eta"].item(), kept["mu"].item()
                p.mul_(1 - lambd * eta)
                p.add_(grad, alpha=-eta)
                if mu == 1:
                    kept["ax"].copy_(p)
                else:
                    kept["ax"].lerp_(p, mu)
                count = kept["step"].item() + 1
                kept["step"].fill_(count)
                kept["eta"].fill_(lr / (1 + lambd * lr * count) ** group["alpha"])
                kept["mu"].fill_(1 / max(1, count - group["t0"]))
        return loss
