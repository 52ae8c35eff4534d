"""``horovod.torch``: Horovod's names over ``torch.distributed``."""

from __future__ import annotations

import contextlib
import os

from .. import _C
from .. import distributed as dist
from ..distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from ..nn.parallel._reducer import Reducer

_torch = _C._torch

Average, Sum, Min, Max, Product = dist.ReduceOp.AVG, dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT


class Compression:
    """Compression of gradients: none, or float16."""

    class none:
        """Uncompressed."""

    class fp16:
        """As float16."""


_started_here = False


def init(comm=None, process_sets=None):
    """Meets the other processes of the job."""
    global _started_here
    if comm is not None or process_sets is not None:
        raise NotImplementedError("hvd.init: comm and process_sets are not supported; all processes of the job take part")
    if not dist.is_initialized():
        dist.init_process_group()
        _started_here = True


def shutdown():
    """Leaves the job, if ``init`` joined it."""
    global _started_here
    if _started_here and dist.is_initialized():
        dist.destroy_process_group()
    _started_here = False


def is_initialized():
    """Whether ``init`` was called."""
    return dist.is_initialized()


def _ready():
    if not dist.is_initialized():
        raise ValueError("Horovod has not been initialized; use hvd.init().")


def rank():
    """The rank of this process."""
    _ready()
    return dist.get_rank()


def size():
    """Number of processes."""
    _ready()
    return dist.get_world_size()


def _launched(name, variable):
    _ready()
    text = os.environ.get(variable)
    found = int(text) if text is not None else _C._detect_launch()[name]
    if found is None:
        raise ValueError(f"horovod: the launcher does not say {variable}; set it")
    return found


def local_rank():
    """The rank of this process on its node."""
    return _launched("local_rank", "LOCAL_RANK")


def local_size():
    """Number of processes on this node."""
    return _launched("local_size", "LOCAL_WORLD_SIZE")


def cross_rank():
    """The index of this node."""
    return rank() // local_size()


def cross_size():
    """Number of nodes."""
    return -(-size() // local_size())


def _yes():
    return True


gloo_enabled = gloo_built = mpi_threads_supported = is_homogeneous = _yes


def mpi_enabled():
    """Whether Horovod's own MPI controller runs: it does not."""
    return False


mpi_built = ccl_built = ddl_built = rocm_built = cuda_built = mpi_enabled


def nccl_built():
    """Version of NCCL that Horovod was built with: 0, none."""
    return 0


def _op(average, op, call):
    if average is not None and op is not None:
        raise ValueError(f"{call}: the op parameter supersedes average; provide one of them")
    return (Average if average is not False else Sum) if op is None else op


class _Handle:
    """A running collective and its result."""

    def __init__(self, work, finish):
        self.work, self.finish = work, finish


def _start_reduce(tensor, target, average, compression, op, prescale_factor, postscale_factor, call):
    _ready()
    op = _op(average, op, call)
    sent = tensor.detach()
    is_integer_mean = op == Average and not sent.is_floating_point()
    sent = sent * prescale_factor if prescale_factor != 1.0 else sent.clone()
    if compression is Compression.fp16 and sent.is_floating_point():
        sent = sent.to(_C.float16)
    work = dist.all_reduce(sent, Sum if is_integer_mean else op, async_op=True)

    def finish():
        result = _torch.div(sent, size(), rounding_mode="trunc") if is_integer_mean else sent
        result = result.to(tensor.dtype)
        result = result * postscale_factor if postscale_factor != 1.0 else result
        return result if target is None else target.detach().copy_(result)

    return _Handle(work, finish)


def synchronize(handle):
    """Waits for an asynchronous call and returns its tensor."""
    handle.work.wait()
    return handle.finish()


def poll(handle):
    """Whether an asynchronous call is done."""
    return handle.work.is_completed()


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0):
    """Starts ``allreduce``."""
    return _start_reduce(tensor, None, average, Compression.none, op, prescale_factor, postscale_factor, "allreduce_async")


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0):
    """Starts ``allreduce_``."""
    return _start_reduce(tensor, tensor, average, Compression.none, op, prescale_factor, postscale_factor, "allreduce_async_")


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, postscale_factor=1.0):
    """The mean of the ranks' tensors, or the reduction ``op``."""
    return synchronize(_start_reduce(tensor, None, average, compression, op, prescale_factor, postscale_factor, "allreduce"))


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0):
    """``allreduce`` in place."""
    synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor))
    return tensor


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, postscale_factor=1.0):
    """``allreduce`` of several tensors."""
    return [allreduce(t, average, name, compression, op, prescale_factor, postscale_factor) for t in tensors]


def allgather(tensor, name=None):
    """The ranks' tensors one after another; their first dimensions may differ."""
    _ready()
    rows = _torch.empty(size(), dtype=_C.int64)
    dist.all_gather_into_tensor(rows, _C.tensor([tensor.shape[0]]))
    parts = [_torch.empty((n, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device) for n in rows.tolist()]
    dist.all_gather(parts, tensor.detach().contiguous())
    return _torch.cat(parts, 0)


def broadcast(tensor, root_rank, name=None):
    """The root's tensor, as a new one."""
    return broadcast_(tensor.detach().clone(), root_rank, name)


def broadcast_(tensor, root_rank, name=None):
    """The root's tensor, in place."""
    _ready()
    dist.broadcast(tensor, src=root_rank)
    return tensor


def barrier():
    """Waits for all processes."""
    _ready()
    dist.barrier()


def broadcast_object(obj=None, root_rank=0, name=None):
    """The root's object."""
    _ready()
    listed = [obj]
    dist.broadcast_object_list(listed, src=root_rank)
    return listed[0]


def allgather_object(obj, name=None):
    """Every rank's object, as a list."""
    _ready()
    found = [None] * size()
    dist.all_gather_object(found, obj)
    return found


def broadcast_parameters(params, root_rank):
    """Gives all ranks the root's parameters: a state dict, or named parameters."""
    _ready()
    pairs = params.items() if isinstance(params, dict) else params
    for _, value in pairs:
        if isinstance(value, _C.Tensor):
            dist.broadcast(value.detach(), src=root_rank)


def broadcast_optimizer_state(optimizer, root_rank):
    """Gives all ranks the root's optimizer state, options included."""
    state = broadcast_object(optimizer.state_dict() if rank() == root_rank else None, root_rank)
    if rank() != root_rank:
        optimizer.load_state_dict(state)


class _Distributed:
    """The methods that ``DistributedOptimizer`` adds to an optimizer's class."""

    def synchronize(self):
        """Gradients are the means when ``backward`` returns: there is nothing left to wait for."""

    @contextlib.contextmanager
    def skip_synchronize(self):
        """For a step after ``synchronize``."""
        yield

    def set_backward_passes_per_step(self, passes):
        """Number of backward passes whose gradients are summed before the exchange."""
        self._passes = passes
        self._passed = 0

    def zero_grad(self, *args, **kwargs):
        # Clears the state of a pass that failed.
        self._reducer.reset()
        return super().zero_grad(*args, **kwargs)

    def _count(self):
        """Called at the first gradient of a pass: whether this pass ends with the exchange."""
        self._passed = self._passed % self._passes + 1
        return self._passed == self._passes


class _StepReducer(Reducer):
    """A reducer that exchanges gradients at the last of several backward passes."""

    def __init__(self, named, optimizer):
        self.optimizer = optimizer
        super().__init__(named, dist.group.WORLD, 25 << 20, zero_missing=True)
        self._reducer.set_decision(self._weak(lambda reducer: reducer.optimizer()._count()))

    def reset(self):
        """Resets to the state before the first pass."""
        self.before_forward(True)


def _sum_in_half(state, bucket):
    """Sends a bucket as float16, for a sum."""
    buffer = bucket.buffer()
    sent = dist.all_reduce(buffer.to(_C.float16), Sum, async_op=True)
    return sent.get_future().then(lambda future: buffer.copy_(future.value()[0]))


def DistributedOptimizer(
    optimizer, named_parameters=None, compression=Compression.none, backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0,
    num_groups=0, groups=None, sparse_as_dense=False, process_set=None,
):
    """The optimizer, with gradients exchanged at the end of every ``backward``. Buckets follow from sizes: ``groups`` are not needed."""
    import weakref

    _ready()
    if op not in (Average, Sum):
        raise NotImplementedError(f"DistributedOptimizer: op must be Average or Sum, not {op}")
    if gradient_predivide_factor != 1.0 or process_set is not None:
        raise NotImplementedError("DistributedOptimizer: gradient_predivide_factor and process_set are not supported")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be > 0")
    owned = [p for group in optimizer.param_groups for p in group["params"]]
    named = list(named_parameters) if named_parameters is not None else [(f"allreduce.noname.{i}", p) for i, p in enumerate(owned)]
    names = [name for name, _ in named]
    if len(set(names)) != len(names):
        raise ValueError("Parameter names in named_parameters must be unique.")
    if any(not any(p is q for _, q in named) for p in owned):
        raise ValueError("named_parameters was specified, but one or more model parameters were not named.")
    kind = type(optimizer)
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), {"__module__": kind.__module__})
    optimizer.set_backward_passes_per_step(backward_passes_per_step)
    reducer = _StepReducer([(n, p) for n, p in named if p.requires_grad], weakref.ref(optimizer))
    if compression is Compression.fp16:
        reducer.hook = (_sum_in_half if op == Sum else fp16_compress_hook, None)
    elif op == Sum:
        reducer.set_divisor(1)
    optimizer._reducer = reducer
    return optimizer
