"""Muon: momentum, orthogonalised."""

from .. import _C
from ..autograd.grad_mode import no_grad
from .optimizer import Optimizer, _call

__all__ = ["Muon"]

_RATIOS = {
    "original": lambda rows, columns: max(1, rows / columns) ** 0.5,
    "match_rms_adamw": lambda rows, columns: 0.2 * max(rows, columns) ** 0.5,
    "spectral_unclamped": lambda rows, columns: (rows / columns) ** 0.5,
}


class Muon(Optimizer):
    """The momentum of a matrix is replaced by the nearest orthogonal one, by Newton-Schulz iterations in bfloat16.

    For the matrices of hidden layers; embeddings, biases and heads are better left to ``AdamW``.
    """

    def __init__(
        self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(3.4445, -4.7750, 2.0315), eps=1e-7,
        ns_steps=5, adjust_lr_fn=None,
    ):
        for value, what in [(lr, "Learning rate"), (momentum, "momentum"), (weight_decay, "weight decay")]:
            if value < 0:
                raise ValueError(f"{what} should be >= 0 but is: {value}")
        if adjust_lr_fn is not None and adjust_lr_fn not in _RATIOS:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        if ns_steps >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        if len(ns_coefficients) != 3:
            raise ValueError("Coefficients must be a tuple of exactly 3 values")
        super().__init__(params, dict(
            lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, ns_coefficients=ns_coefficients, eps=eps,
            ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn,
        ))
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")

    @no_grad()
    def step(self, closure=None):
        """One step over all parameters that have a gradient."""
        _C._refuse_recording("Muon.step")
        loss = None if closure is None else _call(closure)
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                kept = self.state[p]
                if "momentum_buffer" not in kept:
                    kept["momentum_buffer"] = _C._torch.zeros_like(grad)
                buffer = kept["momentum_buffer"]
                buffer.lerp_(grad, 1 - momentum)
                update = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
                update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
                ratio = _RATIOS[group["adjust_lr_fn"] or "original"](*p.shape)
                p.mul_(1 - lr * group["weight_decay"])
                p.add_(update.to(p.dtype), alpha=-lr * ratio)
        return loss


def _orthogonal(x, coefficients, steps, eps):
    """Near the orthogonal matrix nearest to ``x``: singular values go to about one."""
    a, b, c = coefficients
    tall = x.shape[0] > x.shape[1]
    x = x.to(_C.bfloat16)
    if tall:
        x = x.T
    x = x / x.norm(2).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        update = _C._torch.addmm(gram, gram, gram, beta=b, alpha=c)
        x = _C._torch.addmm(x, update, x, beta=a)
    return x.T if tall else x
