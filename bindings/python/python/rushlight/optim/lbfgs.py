"""L-BFGS: a quasi-Newton method that keeps a few past steps and gradients."""

from .. import _C
from ..autograd.grad_mode import no_grad
from ._strong_wolfe import Point, strong_wolfe
from .optimizer import Optimizer, _call, _check_lr

__all__ = ["LBFGS"]


def _largest(vector):
    return vector.abs().max().item()


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

    def _flat_grad(self):
        flat = _C._torch.cat([(_C._torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in self._params])
        return -flat if self.param_groups[0]["maximize"] else flat

    def _loss(self, closure):
        loss = _call(closure)
        return loss, -float(loss) if self.param_groups[0]["maximize"] else float(loss)

    def _advance(self, step, direction):
        at = 0
        for p in self._params:
            p.add_(direction[at : at + p.numel()].reshape(p.shape), alpha=step)
            at += p.numel()

    def _evaluate(self, closure, start, step, direction):
        """The point a step along a direction; the parameters are left where they were."""
        try:
            self._advance(step, direction)
            loss = self._loss(closure)[1]
            grad = self._flat_grad()
        finally:
            for p, old in zip(self._params, start):
                p.copy_(old)
        return Point(step, loss, grad, grad.dot(direction).item())

    @no_grad()
    def step(self, closure):
        """One step of up to ``max_iter`` iterations. Returns the loss at its beginning."""
        _C._refuse_recording("LBFGS.step")
        group = self.param_groups[0]
        line_search = group["line_search_fn"]
        if line_search not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        lr, max_iter, max_eval = float(group["lr"]), group["max_iter"], group["max_eval"]
        tolerance_grad, tolerance_change = group["tolerance_grad"], group["tolerance_change"]
        # The state of all is kept with the first parameter, as in PyTorch's state dicts.
        kept = self.state[self._params[0]]
        kept.setdefault("func_evals", 0)
        kept.setdefault("n_iter", 0)

        first_loss, loss = self._loss(closure)
        evaluations = 1
        kept["func_evals"] += 1
        grad = self._flat_grad()
        if grad.numel() == 0 or _largest(grad) <= tolerance_grad:
            return first_loss
        for iteration in range(1, max_iter + 1):
            kept["n_iter"] += 1
            if kept["n_iter"] == 1:
                kept.update(d=-grad, old_dirs=[], old_stps=[], ro=[], H_diag=1)
                step = min(1.0, 1.0 / grad.abs().sum().item()) * lr
            else:
                _next_direction(kept, grad, group["history_size"])
                step = lr
            direction = kept["d"]
            kept["prev_flat_grad"] = grad.clone()
            kept["prev_loss"] = previous_loss = loss
            kept["t"] = step
            slope = grad.dot(direction).item()
            if slope > -tolerance_change:
                break
            done = False
            if line_search == "strong_wolfe":
                start = [p.detach().clone() for p in self._params]
                point, used = strong_wolfe(
                    lambda step: self._evaluate(closure, start, step, direction), Point(0.0, loss, grad, slope), step,
                    _largest(direction), max_eval - evaluations,
                )
                step, loss, grad = point.step, point.loss, point.grad
                self._advance(step, direction)
                done = _largest(grad) <= tolerance_grad
            else:
                used = 0
                self._advance(step, direction)
                # The last point is not evaluated: the next step begins with that.
                if iteration != max_iter:
                    loss = self._loss(closure)[1]
                    grad = self._flat_grad()
                    done = _largest(grad) <= tolerance_grad
                    used = 1
            kept["t"] = step
            evaluations += used
            kept["func_evals"] += used
            if evaluations >= max_eval or done:
                break
            if _largest(direction * step) <= tolerance_change or abs(loss - previous_loss) < tolerance_change:
                break
        return first_loss


def _next_direction(kept, grad, history_size):
    """The direction from the gradient by the two-loop recursion over past changes."""
    change, moved = grad - kept["prev_flat_grad"], kept["d"] * float(kept["t"])
    product = change.dot(moved).item()
    changes, moves, inverses = kept["old_dirs"], kept["old_stps"], kept["ro"]
    if product > 1e-10:
        if len(changes) == history_size:
            for past in (changes, moves, inverses):
                past.pop(0)
        changes.append(change)
        moves.append(moved)
        inverses.append(1.0 / product)
        kept["H_diag"] = product / change.dot(change).item()
    direction = -grad
    along = [0.0] * len(changes)
    for i in range(len(changes) - 1, -1, -1):
        along[i] = moves[i].dot(direction).item() * float(inverses[i])
        direction.add_(changes[i], alpha=-along[i])
    direction = direction * float(kept["H_diag"])
    for i, change in enumerate(changes):
        back = change.dot(direction).item() * float(inverses[i])
        direction.add_(moves[i], alpha=along[i] - back)
    kept["d"] = direction
    kept["al"] = along
