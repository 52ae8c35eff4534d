"""L-BFGS: a quasi-Newton method that keeps a few past steps and gradients. The minimiser is Rust's (`rushlight-optim`)."""

from .. import _C
from .optimizer import Optimizer, _check_lr

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """L-BFGS over all parameters as one vector. It evaluates the loss several times a step: ``step`` needs a closure that clears the
    gradients, computes the loss, calls ``backward`` and returns the loss."""

    def __init__(
        self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100,
        line_search_fn=None, *, maximize=False,
    ):
        _check_lr(lr)
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(params, dict(
            lr=lr, max_iter=max_iter, max_eval=max_eval, tolerance_grad=tolerance_grad, tolerance_change=tolerance_change,
            history_size=history_size, line_search_fn=line_search_fn, maximize=maximize,
        ))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def __setstate__(self, state):
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    def step(self, closure):
        """One step of up to ``max_iter`` iterations. Returns the loss at its beginning."""
        group = self.param_groups[0]
        # The state of all is kept with the first parameter, as in PyTorch's state dicts.
        kept = self.state[self._params[0]]
        try:
            return _C._lbfgs_step(self._params, group, kept, closure)
        finally:
            if kept.get("n_iter", 0) > 1:
                # PyTorch's scratch list of the two-loop recursion; it holds nothing from one step to the next.
                kept.setdefault("al", [None] * group["history_size"])
