"""Resilient backpropagation: steps by the gradient's sign."""

from .. import _C
from ..autograd.grad_mode import no_grad
from .optimizer import Optimizer, _call, _check_execution, _check_lr, _require

__all__ = ["Rprop"]


class Rprop(Optimizer):
    """Every element has a step size of its own: it grows while the gradient keeps its sign and shrinks when that changes."""

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

    @no_grad()
    def step(self, closure=None):
        """One step over all parameters that have a gradient."""
        _C._refuse_recording("Rprop.step")
        loss = None if closure is None else _call(closure)
        for group in self.param_groups:
            (shrink, grow), (smallest, largest) = group["etas"], group["step_sizes"]
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                kept = self.state[p]
                if not kept:
                    kept.update(
                        step=_C.tensor(0.0, dtype=_C.float32), prev=_C._torch.zeros_like(p),
                        step_size=_C._torch.full_like(p, float(group["lr"])),
                    )
                kept["step"].add_(1)
                if group["maximize"]:
                    grad = -grad
                agreement = grad * kept["prev"]
                factor = _C._torch.ones_like(grad).masked_fill(agreement > 0, grow).masked_fill(agreement < 0, shrink)
                kept["step_size"].mul_(factor).clamp_(smallest, largest)
                grad = grad.masked_fill(agreement < 0, 0)
                p.sub_(grad.sign() * kept["step_size"])
                kept["prev"].copy_(grad)
        return loss
