"""Functions that make masked tensors."""

from .core import MaskedTensor

__all__ = ["as_masked_tensor", "masked_tensor"]


def masked_tensor(data, mask, requires_grad=False):
    """A masked tensor of its own memory, without history."""
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data, mask):
    """A masked tensor that keeps the history of its data."""
    return MaskedTensor._from_values(data, mask)
