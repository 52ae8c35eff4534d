"""``SparseAdam`` raises an error: it is not supported."""

from .optimizer import Optimizer

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Not supported: gradients are never sparse."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        raise NotImplementedError("SparseAdam: gradients are never sparse here; use torch.optim.Adam")
