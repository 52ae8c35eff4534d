"""``out_dtype``: an op in another dtype than its operands'."""

from .. import _C


def out_dtype(op, output_dtype, *args):
    """The result of an op whose operands are converted first, so that sums of small integers do not overflow."""
    return op(*(arg.to(output_dtype) if isinstance(arg, _C.Tensor) else arg for arg in args)).to(output_dtype)
