"""Adam for sparse gradients: only rows with a gradient change."""

import math

from .. import _C
from .optimizer import Optimizer, _call, _check_adam, _no_grad

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam that updates the moments and the elements of rows that have a gradient, as embeddings with ``sparse=True`` make it."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        if isinstance(lr, _C.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 < lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        _check_adam(lr, betas, eps, 0.0)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))
        sparse = [i for i, p in enumerate(p for group in self.param_groups for p in group["params"]) if getattr(p, "layout", None) not in (None, _C.strided)]
        if sparse:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")

    def step(self, closure=None):
        """One step. Returns the closure's loss, if there is a closure."""
        loss = None if closure is None else _call(closure)
        with _no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        self._update(group, p, p.grad)
        return loss

    def _update(self, group, p, grad):
        if not getattr(grad, "is_sparse", False):
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        state = self.state[p]
        if not state:
            state["step"] = 0
            state["exp_avg"], state["exp_avg_sq"] = _C._torch.zeros_like(p.detach()), _C._torch.zeros_like(p.detach())
        state["step"] += 1
        grad = grad.coalesce()
        if grad._nnz() == 0:
            return
        rows, values = grad.indices()[0], grad.values()
        values = -values if group["maximize"] else values
        beta1, beta2 = group["betas"]
        first, second = state["exp_avg"].index_select(0, rows), state["exp_avg_sq"].index_select(0, rows)
        first, second = first + (values - first) * (1 - beta1), second + (values * values - second) * (1 - beta2)
        state["exp_avg"].index_copy_(0, rows, first)
        state["exp_avg_sq"].index_copy_(0, rows, second)
        size = float(group["lr"]) * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
        p.index_add_(0, rows, first / (second.sqrt() + group["eps"]), alpha=-size)
