"""Collectives that autograd records."""

from ..autograd.function import Function
from . import _collectives as dist


class _Sum(Function):
    """The sum over the ranks. Every rank's loss depends on every rank's input, so gradients are summed as well."""

    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        total = tensor.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


def all_sum(tensor, group=None):
    """The sum of the ranks' tensors, recorded."""
    return _Sum.apply(tensor, group)
