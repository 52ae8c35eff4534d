"""Adafactor: squares of gradients by rows and columns."""

from .. import _C
from ..autograd.grad_mode import no_grad
from .optimizer import Optimizer, _call

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Divides by root mean squares that are kept for rows and columns of a matrix only, and bounds the size of updates."""

    def __init__(
        self, params, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, *, foreach=None, maximize=False,
    ):
        if isinstance(lr, _C.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for ok, message in [
            (0.0 <= lr, f"Learning rate should be >= 0 but is: {lr}"),
            (beta2_decay <= 0.0, f"beta2_decay should be <= 0 but is: {beta2_decay}"),
            (eps[0] is None or 0.0 <= eps[0], f"epsilon1 should be >= 0 but is: {eps[0]}"),
            (0.0 <= eps[1], f"epsilon2 should be >= 0 but is: {eps[1]}"),
            (1.0 <= d, f"Clipping threshold d should be >= 1 but is: {d}"),
            (0.0 <= weight_decay, f"weight_decay should be >= 0 but is: {weight_decay}"),
        ]:
            if not ok:
                raise ValueError(message)
        super().__init__(params, dict(
            lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
        ))

    @no_grad()
    def step(self, closure=None):
        """One step over all parameters that have a gradient."""
        _C._refuse_recording("Adafactor.step")
        loss = None if closure is None else _call(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    _step(p, -p.grad if group["maximize"] else p.grad, self.state[p], group)
        return loss


def _step(p, grad, kept, group):
    lr, (smallest_square, smallest_scale) = float(group["lr"]), group["eps"]
    if smallest_square is None:
        from .. import finfo

        smallest_square = finfo(p.dtype).eps
    factored = grad.dim() > 1
    if not kept:
        kept["step"] = _C.tensor(0.0, dtype=_C.float32)
        if factored:
            kept["row_var"] = grad.new_zeros((*grad.shape[:-1], 1))
            kept["col_var"] = grad.new_zeros((*grad.shape[:-2], 1, grad.shape[-1]))
        else:
            kept["variance"] = _C._torch.zeros_like(grad)
    count = kept["step"].item() + 1
    kept["step"].fill_(count)
    share = count ** group["beta2_decay"]
    root_size = p.numel() ** 0.5
    step = max(smallest_scale, p.norm(2).item() / root_size) * min(lr, count**-0.5)
    if group["weight_decay"] != 0:
        p.mul_(1 - lr * group["weight_decay"])
    squares = grad * grad
    if factored:
        rows, columns = kept["row_var"], kept["col_var"]
        rows.lerp_(squares.mean(-1, keepdim=True), share)
        columns.lerp_(squares.mean(-2, keepdim=True), share)
        variance = (rows @ columns) / rows.mean(-2, keepdim=True).clamp(min=smallest_square)
    else:
        variance = kept["variance"].lerp_(squares, share)
    update = variance.clamp(min=smallest_square * smallest_square).rsqrt() * grad
    excess = max(1.0, update.norm(2).item() / (root_size * group["d"]))
    p.add_(update, alpha=-step / excess)
