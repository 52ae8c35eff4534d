"""Stochastic gradient descent."""

from .optimizer import _ByFormula, _check_execution, _check_lr, _require

__all__ = ["SGD"]


class SGD(_ByFormula):
    """Stochastic gradient descent, optionally with momentum.

    >>> import rushlight as torch
    >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = torch.optim.SGD([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.0, 0.0]
    """

    _formula = "SGD"

    def __init__(
        self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False, foreach=None,
        differentiable=False, fused=None,
    ):
        _check_lr(lr)
        _require(momentum >= 0.0, "momentum value", momentum)
        _require(weight_decay >= 0.0, "weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        _check_execution(differentiable, foreach, fused)
        super().__init__(params, dict(
            lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize,
            foreach=foreach, differentiable=differentiable, fused=fused,
        ))

    def _sparse_step(self, group, parameter, gradient):
        """Momentum of sparse gradients is sparse, as in PyTorch."""
        if group["weight_decay"]:
            raise RuntimeError("SGD: weight_decay does not go with sparse gradients: it changes every row")
        if group["momentum"]:
            state = self.state[parameter]
            before = state.get("momentum_buffer")
            gradient = gradient if not group["maximize"] else -gradient
            if before is None:
                buffer = gradient.detach().coalesce()
            else:
                buffer = (before * group["momentum"] + gradient * (1 - group["dampening"])).coalesce()
            state["momentum_buffer"] = buffer
            gradient = gradient + buffer * group["momentum"] if group["nesterov"] else buffer
            rate = -float(group["lr"])
        else:
            rate = float(group["lr"]) * (1 if group["maximize"] else -1)
        parameter.index_add_(0, gradient._indices()[0], gradient._values(), alpha=rate)
