"""Horovod's collectives on tensors: in place, into new tensors with gradients, and asynchronous; of all processes or of a process set."""

from __future__ import annotations

from .. import _C
from .. import distributed as dist
from ..autograd import Function
from ._sets import _ready, global_process_set

_torch = _C._torch

Average, Sum, Min, Max, Product = dist.ReduceOp.AVG, dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT


class _Adasum:
    """``hvd.Adasum``, which is not supported."""


Adasum = _Adasum()


class HorovodInternalError(RuntimeError):
    """An error of a collective, by Horovod's name."""


class Compression:
    """Compression of gradients: none, or float16."""

    class none:
        """Uncompressed."""

        @staticmethod
        def compress(tensor):
            """The tensor, and what ``decompress`` needs."""
            return tensor, None

        @staticmethod
        def decompress(tensor, ctx):
            """The tensor."""
            return tensor

    class fp16:
        """As float16."""

        @staticmethod
        def compress(tensor):
            """The tensor as float16 if it is floating, and its dtype."""
            return (tensor.to(_C.float16) if tensor.is_floating_point() else tensor), tensor.dtype

        @staticmethod
        def decompress(tensor, ctx):
            """The tensor in its former dtype."""
            return tensor.to(ctx) if ctx.is_floating_point else tensor


#: Names of asynchronous calls that nobody has waited for.
_outstanding = set()


def _op(average, op, call):
    if average is not None and op is not None:
        raise ValueError(f"{call}: the op parameter supersedes average; provide one of them")
    found = (Average if average is not False else Sum) if op is None else op
    if isinstance(found, _Adasum):
        raise NotImplementedError(f"{call}: Adasum is not supported; use hvd.Average or hvd.Sum")
    return found


class _Handle:
    """Running collectives and what their result is made of."""

    def __init__(self, works, finish, name=None):
        self.works, self.finish, self.name = works, finish, name


def _start(begin, name):
    """Starts collectives under a name, which must not be in use."""
    _ready()
    if name is not None and name in _outstanding:
        raise ValueError(f"an operation named {name!r} is running; give another name, or synchronize it first")
    works, finish = begin()
    if name is not None:
        _outstanding.add(name)
    return _Handle(works, finish, name)


def synchronize(handle):
    """Waits for an asynchronous call and returns its result."""
    try:
        for work in handle.works:
            work.wait()
    finally:
        _outstanding.discard(handle.name)
    return handle.finish()


def poll(handle):
    """Whether an asynchronous call is done."""
    return all(work.is_completed() for work in handle.works)


def _scaled(tensor, factor):
    return tensor if factor == 1.0 else (tensor * factor).to(tensor.dtype)


def _divided(tensor, count):
    """A mean of integers is cut, as Horovod's."""
    return _torch.div(tensor, count, rounding_mode="trunc")


def _reduction(tensors, targets, op, compression, prescale, postscale, process_set):
    """Starts the reduction of tensors; their results go to ``targets``, or to new tensors."""
    group, size = process_set._group(), process_set.size()
    sent = [_scaled(t.detach(), prescale) for t in tensors]
    sent = [s.to(_C.float16) if compression is Compression.fp16 and s.is_floating_point() else s for s in sent]
    sent = [s.clone() if s.data_ptr() == t.data_ptr() else s.contiguous() for s, t in zip(sent, tensors)]
    integers = [op == Average and not s.is_floating_point() for s in sent]
    works = [dist.all_reduce(s, Sum if whole else op, group=group, async_op=True) for s, whole in zip(sent, integers)]

    def finish():
        results = []
        for tensor, target, value, whole in zip(tensors, targets, sent, integers):
            value = _divided(value, size) if whole else value
            value = _scaled(value.to(tensor.dtype), postscale)
            results.append(value if target is None else target.detach().copy_(value))
        return results

    return works, finish


def _first(handle):
    inner = handle.finish
    handle.finish = lambda: inner()[0]
    return handle


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Starts ``grouped_allreduce``."""
    op = _op(average, op, "grouped_allreduce_async")
    return _start(lambda: _reduction(tensors, [None] * len(tensors), op, Compression.none, prescale_factor, postscale_factor, process_set), name)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Starts ``grouped_allreduce_``."""
    op = _op(average, op, "grouped_allreduce_async_")
    return _start(lambda: _reduction(tensors, tensors, op, Compression.none, prescale_factor, postscale_factor, process_set), name)


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Starts ``allreduce``."""
    return _first(grouped_allreduce_async([tensor], average, name, op, prescale_factor, postscale_factor, process_set))


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Starts ``allreduce_``."""
    return _first(grouped_allreduce_async_([tensor], average, name, op, prescale_factor, postscale_factor, process_set))


class _AllReduce(Function):
    @staticmethod
    def forward(ctx, options, *tensors):
        ctx.options = options
        op, compression, prescale, postscale, process_set = options
        return tuple(synchronize(_start(lambda: _reduction(tensors, [None] * len(tensors), op, compression, prescale, postscale, process_set), None)))

    @staticmethod
    def backward(ctx, *grads):
        return (None, *_AllReduce.apply(ctx.options, *grads))


def grouped_allreduce(
    tensors, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set,
):
    """``allreduce`` of several tensors."""
    op = _op(average, op, "grouped_allreduce")
    _ready()
    if not any(tensor.requires_grad for tensor in tensors):
        return synchronize(_start(lambda: _reduction(tensors, [None] * len(tensors), op, compression, prescale_factor, postscale_factor, process_set), None))
    # A node of the graph each: their gradients may come in several passes.
    return [_AllReduce.apply((op, compression, prescale_factor, postscale_factor, process_set), tensor)[0] for tensor in tensors]


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """``grouped_allreduce`` in place."""
    synchronize(grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set))
    return list(tensors)


def allreduce(
    tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set,
):
    """The mean of the ranks' tensors, or the reduction ``op``. Its gradient is reduced in the same way."""
    return grouped_allreduce([tensor], average, name, compression, op, prescale_factor, postscale_factor, process_set)[0]


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """``allreduce`` in place."""
    return grouped_allreduce_([tensor], average, name, op, prescale_factor, postscale_factor, process_set)[0]


def _rows(tensor, process_set):
    """The length of every rank's tensor."""
    counts = _torch.empty(process_set.size(), dtype=_C.int64)
    dist.all_gather_into_tensor(counts, _C.tensor([tensor.shape[0]]), group=process_set._group())
    return counts.tolist()


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Starts ``allgather``."""

    def begin():
        counts = _rows(tensor, process_set)
        parts = [_torch.empty((n, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device) for n in counts]
        work = dist.all_gather(parts, tensor.detach().contiguous(), group=process_set._group(), async_op=True)
        return [work], lambda: _torch.cat(parts, 0)

    return _start(begin, name)


class _AllGather(Function):
    @staticmethod
    def forward(ctx, process_set, tensor):
        ctx.process_set, ctx.rows = process_set, tensor.shape[0]
        return synchronize(allgather_async(tensor, None, process_set))

    @staticmethod
    def backward(ctx, grad):
        # As Horovod has it: the mean of the ranks' gradients.
        counts = _rows(grad[: ctx.rows], ctx.process_set)
        total = allreduce(grad, op=Average, process_set=ctx.process_set)
        return None, total.narrow(0, sum(counts[: ctx.process_set.rank()]), ctx.rows)


def allgather(tensor, name=None, process_set=global_process_set):
    """The ranks' tensors one after another; their first dimensions may differ."""
    _ready()
    return _AllGather.apply(process_set, tensor)


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """``allgather`` of several tensors."""
    return [allgather(tensor, None, process_set) for tensor in tensors]


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """Starts ``grouped_allgather``."""
    handles = [allgather_async(tensor, None, process_set) for tensor in tensors]
    return _start(lambda: ([work for h in handles for work in h.works], lambda: [h.finish() for h in handles]), name)


def _broadcast(tensor, target, root_rank, process_set):
    work = dist.broadcast(target, src=root_rank, group=process_set._group(), async_op=True)
    return [work], lambda: target if target is not tensor else tensor


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts ``broadcast``."""
    return _start(lambda: _broadcast(tensor, tensor.detach().clone(), root_rank, process_set), name)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts ``broadcast_``."""
    return _start(lambda: _broadcast(tensor, tensor.detach(), root_rank, process_set), name)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx, root_rank, process_set, tensor):
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return synchronize(broadcast_async(tensor, root_rank, None, process_set))

    @staticmethod
    def backward(ctx, grad):
        # As Horovod has it: the mean, for the root.
        total = allreduce(grad, op=Average, process_set=ctx.process_set)
        return None, None, total if dist.get_rank() == ctx.root_rank else total * 0


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """The root's tensor, as a new one."""
    _ready()
    return _Broadcast.apply(root_rank, process_set, tensor)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """The root's tensor, in place."""
    synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return tensor


def _parts(tensor, splits, size):
    """How many rows go to each process."""
    if splits is None:
        if tensor.dim() == 0 or tensor.shape[0] % size:
            raise ValueError(f"alltoall: the first dimension of {tuple(tensor.shape)} does not divide by {size} processes; give splits")
        return [tensor.shape[0] // size] * size
    if isinstance(splits, _C.Tensor) and (splits.is_floating_point() or splits.dtype == _C.bool):
        raise ValueError(f"alltoall: splits should be integers, not {splits.dtype}")
    splits = [int(n) for n in (splits.tolist() if isinstance(splits, _C.Tensor) else splits)]
    if len(splits) != size or sum(splits) > tensor.shape[0] or min(splits) < 0:
        raise ValueError(f"alltoall: splits {splits} do not fit {tensor.shape[0]} rows and {size} processes")
    return splits


def _exchange(tensor, splits, process_set):
    """Starts ``alltoall``: the collectives, and a function of the received rows and their numbers."""
    size = process_set.size()
    own = _parts(tensor, splits, size)
    received = _torch.empty(size, dtype=_C.int64)
    dist.all_to_all_single(received, _C.tensor(own), group=process_set._group())
    counts = received.tolist()
    out = _torch.empty((sum(counts), *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
    sent = tensor.detach()[: sum(own)].contiguous()
    work = dist.all_to_all_single(out, sent, counts, own, group=process_set._group(), async_op=True)
    return [work], lambda: (out, _C.tensor(counts, dtype=_C.int32))


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Starts ``alltoall``."""
    handle = _start(lambda: _exchange(tensor, splits, process_set), name)
    if splits is None:
        inner = handle.finish
        handle.finish = lambda: inner()[0]
    return handle


class _AllToAll(Function):
    @staticmethod
    def forward(ctx, splits, process_set, tensor):
        out, counts = synchronize(_start(lambda: _exchange(tensor, splits, process_set), None))
        ctx.process_set, ctx.counts, ctx.rows = process_set, counts, tensor.shape[0]
        ctx.mark_non_differentiable(counts)
        return out, counts

    @staticmethod
    def backward(ctx, grad, _):
        back, _ = synchronize(_start(lambda: _exchange(grad, ctx.counts, ctx.process_set), None))
        if back.shape[0] < ctx.rows:
            back = _torch.cat([back, _torch.zeros((ctx.rows - back.shape[0], *back.shape[1:]), dtype=back.dtype, device=back.device)], 0)
        return None, None, back


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends parts of the tensor to all processes and receives theirs. With ``splits``, the numbers of rows for each, also returns those received."""
    _ready()
    out, counts = _AllToAll.apply(splits, process_set, tensor)
    return out if splits is None else (out, counts)


def _shares(rows, size):
    """Rows of each process: the first ones get one more if they do not divide."""
    return [rows // size + (index < rows % size) for index in range(size)]


def _scattered(tensors, op, compression, prescale, postscale, process_set):
    group, size, rank = process_set._group(), process_set.size(), process_set.rank()
    works, outs = [], []
    for tensor in tensors:
        if tensor.dim() == 0:
            raise ValueError("reducescatter: a scalar cannot be scattered; the tensor needs a first dimension")
        sent = _scaled(tensor.detach(), prescale)
        sent = sent.to(_C.float16) if compression is Compression.fp16 and sent.is_floating_point() else sent
        parts = [part.contiguous() for part in sent.split(_shares(sent.shape[0], size), 0)]
        parts += [sent[:0]] * (size - len(parts))
        out = _torch.empty_like(parts[rank])
        whole = op == Average and not sent.is_floating_point()
        works.append(dist.reduce_scatter(out, parts, Sum if whole else op, group=group, async_op=True))
        outs.append((out, whole, tensor.dtype))
    return works, lambda: [_scaled((_divided(out, size) if whole else out).to(dtype), postscale) for out, whole, dtype in outs]


def _scatter_op(op):
    found = _op(None, op, "reducescatter")
    if found not in (Average, Sum):
        raise NotImplementedError(f"reducescatter: op must be Average or Sum, not {op}")
    return found


def grouped_reducescatter_async(
    tensors, name=None, op=Average, prescale_factor=1.0, postscale_factor=1.0, compression=Compression.none, process_set=global_process_set,
):
    """Starts ``grouped_reducescatter``."""
    op = _scatter_op(op)
    return _start(lambda: _scattered(tensors, op, compression, prescale_factor, postscale_factor, process_set), name)


def reducescatter_async(tensor, name=None, op=Average, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Starts ``reducescatter``."""
    return _first(grouped_reducescatter_async([tensor], name, op, prescale_factor, postscale_factor, Compression.none, process_set))


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx, options, *tensors):
        op, compression, prescale, postscale, process_set = options
        ctx.op, ctx.process_set, ctx.scale = op, process_set, prescale * postscale
        return tuple(synchronize(_start(lambda: _scattered(tensors, op, compression, prescale, postscale, process_set), None)))

    @staticmethod
    def backward(ctx, *grads):
        # As Horovod has it: the gradient of a sum is that of the mean, times the processes.
        factor = ctx.scale * (ctx.process_set.size() if ctx.op == Sum else 1)
        return (None, *[allgather(_scaled(grad, factor), process_set=ctx.process_set) for grad in grads])


def grouped_reducescatter(
    tensors, name=None, compression=Compression.none, op=Average, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set,
):
    """``reducescatter`` of several tensors."""
    _ready()
    options = (_scatter_op(op), compression, prescale_factor, postscale_factor, process_set)
    if not any(tensor.requires_grad for tensor in tensors):
        return synchronize(_start(lambda: _scattered(tensors, *options), None))
    return [_ReduceScatter.apply(options, tensor)[0] for tensor in tensors]


def reducescatter(
    tensor, name=None, compression=Compression.none, op=Average, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set,
):
    """Reduces the ranks' tensors and gives each its rows."""
    return grouped_reducescatter([tensor], name, compression, op, prescale_factor, postscale_factor, process_set)[0]


def barrier(process_set=global_process_set):
    """Waits for all processes."""
    _ready()
    if process_set.included():
        dist.barrier(group=process_set._group())
