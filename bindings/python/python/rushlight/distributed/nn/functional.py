"""``torch.distributed.nn.functional``: collectives whose backward pass is a collective as well. Every rank must run both."""

from ... import _C
from ...autograd.function import Function
from .. import _collectives as dist
from .. import get_rank, get_world_size

__all__ = ["all_gather", "all_reduce", "broadcast", "reduce_scatter"]


def _total(tensor, op, group):
    out = tensor.contiguous().clone()
    dist.all_reduce(out, op, group=group)
    return out


def _place(group):
    return get_rank() if group is None else get_rank(group)


def _size(group):
    return get_world_size() if group is None else get_world_size(group)


class _AllReduce(Function):
    """Combined over the ranks; gradients are combined in the same way."""

    @staticmethod
    def forward(ctx, op, group, tensor):
        ctx.op, ctx.group = op, group
        return _total(tensor, op, group)

    @staticmethod
    def backward(ctx, gradient):
        return None, None, _AllReduce.apply(ctx.op, ctx.group, gradient)


class _AllGather(Function):
    """Every rank's tensor; a tensor's gradient is the sum of all ranks' gradients of it."""

    @staticmethod
    def forward(ctx, group, tensor):
        ctx.group = group
        parts = [_C._torch.empty_like(tensor.contiguous()) for _ in range(_size(group))]
        dist.all_gather(parts, tensor.contiguous(), group=group)
        return tuple(parts)

    @staticmethod
    def backward(ctx, *gradients):
        total = _total(_C._torch.stack(list(gradients)), dist.ReduceOp.SUM, ctx.group)
        return None, total[_place(ctx.group)]


class _Broadcast(Function):
    """The root's tensor; its gradient is the sum over all ranks."""

    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src, ctx.group = src, group
        out = tensor.contiguous().clone()
        dist.broadcast(out, src, group=group)
        return out

    @staticmethod
    def backward(ctx, gradient):
        total = _total(gradient, dist.ReduceOp.SUM, ctx.group)
        return None, None, total if get_rank() == ctx.src else _C._torch.zeros_like(total)


class _ReduceScatter(Function):
    """The sum of the ranks' tensors for this rank; gradients return to the ranks of their tensors."""

    @staticmethod
    def forward(ctx, op, group, *tensors):
        if op != dist.ReduceOp.SUM:
            raise NotImplementedError("reduce_scatter: only sums have a gradient; scale the result for a mean")
        ctx.group = group
        return _total(_C._torch.stack(list(tensors)), op, group)[_place(group)].clone()

    @staticmethod
    def backward(ctx, gradient):
        parts = [_C._torch.empty_like(gradient.contiguous()) for _ in range(_size(ctx.group))]
        dist.all_gather(parts, gradient.contiguous(), group=ctx.group)
        return (None, None, *parts)


def all_reduce(tensor, op=None, group=None):
    """The ranks' tensors combined."""
    op = dist.ReduceOp.SUM if op is None else op
    if op != dist.ReduceOp.SUM and tensor.requires_grad:
        raise NotImplementedError("all_reduce: only sums have a gradient; reduce with ReduceOp.SUM")
    return _AllReduce.apply(op, group, tensor)


def all_gather(tensor, group=None):
    """Every rank's tensor, as a tuple."""
    return _AllGather.apply(group, tensor)


def broadcast(tensor, src, group=None):
    """The root's tensor on every rank."""
    return _Broadcast.apply(src, group, tensor)


def reduce_scatter(output, input_list, op=None, group=None):
    """The sum of the ranks' tensors for this rank; ``output`` has its shape and dtype."""
    return _ReduceScatter.apply(dist.ReduceOp.SUM if op is None else op, group, *input_list)
