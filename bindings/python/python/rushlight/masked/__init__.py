"""``torch.masked``: reductions and normalisations of the elements that a mask keeps, and tensors that carry a mask."""

from . import _ops, maskedtensor  # noqa: F401
from ._ops import (  # noqa: F401
    _canonical_dim, _combine_input_and_mask, _input_mask, _output_mask, _reduction_identity, _where,
    amax, amin, argmax, argmin, cumprod, cumsum, log_softmax, logaddexp, logsumexp, mean, median, norm, normalize, prod, softmax, softmin, std, sum, var,
)
from .maskedtensor import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor  # noqa: F401

__all__ = [
    "amax", "amin", "argmax", "argmin", "as_masked_tensor", "cumprod", "cumsum", "is_masked_tensor", "log_softmax", "logaddexp", "logsumexp", "masked_tensor",
    "MaskedTensor", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]


def __getattr__(name):
    from .._functions import _missing

    return _missing(__name__, name)
