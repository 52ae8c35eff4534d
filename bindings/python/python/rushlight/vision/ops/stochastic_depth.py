"""Stochastic depth: drops a residual branch for whole samples or batches."""

from ... import _C, nn

__all__ = ["StochasticDepth", "stochastic_depth"]


def stochastic_depth(input, p, mode, training=True):
    """Sets rows (``mode="row"``), or all (``"batch"``), to zero with a probability."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}")
    if mode not in ("batch", "row"):
        raise ValueError(f"mode has to be either 'batch' or 'row', but got {mode}")
    if not training or p == 0.0:
        return input
    size = [input.shape[0] if mode == "row" else 1] + [1] * (input.ndim - 1)
    kept = _C._torch.bernoulli(_C._torch.full(size, 1.0 - p, dtype=input.dtype, device=input.device))
    return input * (kept / (1.0 - p) if p < 1.0 else kept)


class StochasticDepth(nn.Module):
    """``stochastic_depth`` as a module."""

    def __init__(self, p, mode):
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input):
        return stochastic_depth(input, self.p, self.mode, self.training)

    def __repr__(self):
        return f"StochasticDepth(p={self.p}, mode={self.mode})"
