"""``torch.distributed._functional_collectives``: collectives that return their result and leave their input alone.

A group is a ``ProcessGroup``, its name, a mesh of one dimension, ``(mesh, dimension)`` or a list of ranks that has a group. Results are complete when a function
returns, so ``wait_tensor`` has nothing to wait for. The functions ending in ``_autograd`` have gradients.
"""

from .. import _absent, _C
from ..autograd.function import Function
from . import _collectives as dist
from ._group import _world, get_process_group_ranks
from .device_mesh import DeviceMesh

__all__ = [
    "AsyncCollectiveTensor", "all_gather_tensor", "all_gather_tensor_autograd", "all_reduce", "all_reduce_coalesced", "all_to_all_single",
    "all_to_all_single_autograd", "broadcast", "reduce_scatter_tensor", "reduce_scatter_tensor_autograd", "wait_tensor",
]

_absent.fill(globals(), "torch.distributed._functional_collectives", "it is not supported; use the other functions of the module", """
all_gather_into_tensor_coalesced permute_tensor reduce_scatter_tensor_coalesced
""")


class AsyncCollectiveTensor(_C.Tensor):
    """PyTorch's class of results that are on their way. No tensor is an instance."""


def _resolve_group(group, tag=""):
    """The group of an argument."""
    if isinstance(group, DeviceMesh):
        return group.get_group()
    if isinstance(group, (tuple, list)):
        if len(group) == 2 and isinstance(group[0], DeviceMesh):
            return group[0].get_group(group[1])
        ranks = [rank for row in group for rank in (row if isinstance(row, (tuple, list)) else (row,))]
        for pg in _world.pg_map:
            if get_process_group_ranks(pg) == ranks:
                return pg
        raise ValueError(f"there is no process group of the ranks {ranks}; make one by new_group")
    if isinstance(group, str):
        from ._symmetric_memory import _named

        return _named(group)
    return group


def _reduction(name):
    if not isinstance(name, str):
        return name
    op = getattr(dist.ReduceOp, name.upper(), None)
    if op is None:
        raise ValueError(f"unknown reduction {name!r}")
    return op


def wait_tensor(tensor):
    """The tensor."""
    return tensor


def broadcast(self, src, group, tag=""):
    """The tensor of the rank ``src`` of the world."""
    out = self.detach().contiguous().clone()
    dist.broadcast(out, src, group=_resolve_group(group, tag))
    return out


def all_reduce(self, reduceOp, group, tag=""):
    """The ranks' tensors combined; ``reduceOp`` is a name such as ``"sum"``."""
    out = self.detach().contiguous().clone()
    dist.all_reduce(out, _reduction(reduceOp), group=_resolve_group(group, tag))
    return out


def all_reduce_coalesced(self, reduceOp, group, tag=""):
    """``all_reduce`` of each tensor of a list, in one call."""
    out = [tensor.detach().contiguous().clone() for tensor in self]
    dist.all_reduce_coalesced(out, _reduction(reduceOp), group=_resolve_group(group, tag))
    return out


def all_gather_tensor(self, gather_dim, group, tag=""):
    """The ranks' tensors, joined along a dimension."""
    pg = _resolve_group(group, tag)
    part = self.detach().contiguous()
    parts = [_C._torch.empty_like(part) for _ in range(pg.size())]
    dist.all_gather(parts, part, group=pg)
    return _C._torch.cat(parts, gather_dim)


def reduce_scatter_tensor(self, reduceOp, scatter_dim, group, tag=""):
    """This rank's part, along a dimension, of the ranks' tensors combined."""
    pg = _resolve_group(group, tag)
    if self.shape[scatter_dim] % pg.size():
        raise ValueError(f"input dimension {scatter_dim} ({self.shape[scatter_dim]} must be a multiple of group_size {pg.size()})")
    parts = [part.contiguous() for part in self.detach().chunk(pg.size(), scatter_dim)]
    out = _C._torch.empty_like(parts[0])
    dist.reduce_scatter(out, parts, _reduction(reduceOp), group=pg)
    return out


def all_to_all_single(self, output_split_sizes, input_split_sizes, group, tag=""):
    """Rows of the first dimension, exchanged among the ranks."""
    pg = _resolve_group(group, tag)
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    out = self.new_empty((rows, *self.shape[1:]))
    lists = (None if sizes is None else list(sizes) for sizes in (output_split_sizes, input_split_sizes))
    dist.all_to_all_single(out, self.detach().contiguous(), *lists, group=pg)
    return out


class _Gather(Function):
    @staticmethod
    def forward(ctx, tensor, dim, group):
        ctx.dim, ctx.group = dim, group
        return all_gather_tensor(tensor, dim, group)

    @staticmethod
    def backward(ctx, gradient):
        return reduce_scatter_tensor(gradient, "sum", ctx.dim, ctx.group), None, None


class _Scatter(Function):
    @staticmethod
    def forward(ctx, tensor, op, dim, group):
        if _reduction(op) != dist.ReduceOp.SUM and _reduction(op) != dist.ReduceOp.AVG:
            raise NotImplementedError("reduce_scatter_tensor_autograd: only sums and means have a gradient")
        ctx.dim, ctx.group, ctx.mean = dim, group, _reduction(op) == dist.ReduceOp.AVG
        return reduce_scatter_tensor(tensor, op, dim, group)

    @staticmethod
    def backward(ctx, gradient):
        whole = all_gather_tensor(gradient, ctx.dim, ctx.group)
        return whole / ctx.group.size() if ctx.mean else whole, None, None, None


class _Exchange(Function):
    @staticmethod
    def forward(ctx, tensor, outputs, inputs, group):
        ctx.sizes, ctx.group = (inputs, outputs), group
        return all_to_all_single(tensor, outputs, inputs, group)

    @staticmethod
    def backward(ctx, gradient):
        return all_to_all_single(gradient, *ctx.sizes, ctx.group), None, None, None


def all_gather_tensor_autograd(self, gather_dim, group, tag=""):
    """``all_gather_tensor`` with a gradient: the sum of the ranks' gradients of this rank's part."""
    return _Gather.apply(self, gather_dim, _resolve_group(group, tag))


def reduce_scatter_tensor_autograd(self, reduceOp, scatter_dim, group, tag=""):
    """``reduce_scatter_tensor`` with a gradient: the gathered gradients."""
    return _Scatter.apply(self, reduceOp, scatter_dim, _resolve_group(group, tag))


def all_to_all_single_autograd(self, output_split_sizes, input_split_sizes, group, tag=""):
    """``all_to_all_single`` with a gradient: the exchange in the other direction."""
    return _Exchange.apply(self, output_split_sizes, input_split_sizes, _resolve_group(group, tag))
