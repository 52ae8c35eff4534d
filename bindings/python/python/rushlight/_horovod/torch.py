"""``horovod.torch``: Horovod's names over ``torch.distributed``."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings

from .. import _C
from .. import distributed as dist
from ..distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from ..nn import SyncBatchNorm  # noqa: F401
from ..nn.parallel._reducer import Reducer
from ._ops import *  # noqa: F403
from ._ops import (  # noqa: F401
    Adasum, Average, Compression, HorovodInternalError, Max, Min, Product, Sum, allgather, allreduce, barrier, broadcast, synchronize,
)
from ._sets import ProcessSet, _forget, _ready, add_process_set, global_process_set, remove_process_set  # noqa: F401

_torch = _C._torch
#: Where libraries look for reductions.
mpi_ops = sys.modules[__name__]

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
    _forget()
    if _started_here and dist.is_initialized():
        dist.destroy_process_group()
    _started_here = False


def is_initialized():
    """Whether ``init`` was called."""
    return dist.is_initialized()


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


def _without(name, instead):
    def absent(*args, **kwargs):
        raise NotImplementedError(f"hvd.{name} is not supported; {instead}")

    absent.__name__ = name
    return absent


join = _without("join", "use torch.distributed.algorithms.join.Join with DistributedDataParallel for uneven inputs")
sparse_allreduce_async = _without("sparse_allreduce_async", "there are no sparse tensors; reduce dense ones")
start_timeline = _without("start_timeline", "torch.profiler records the collectives of a process")
stop_timeline = _without("stop_timeline", "torch.profiler records the collectives of a process")


def broadcast_object(obj=None, root_rank=0, name=None, process_set=global_process_set):
    """The root's object."""
    _ready()
    listed = [obj]
    dist.broadcast_object_list(listed, src=root_rank, group=process_set._group())
    return listed[0]


def allgather_object(obj, name=None, process_set=global_process_set):
    """Every rank's object, as a list."""
    _ready()
    found = [None] * process_set.size()
    dist.all_gather_object(found, obj, group=process_set._group())
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

    _synchronized = _skips = False

    def synchronize(self):
        """Gradients are the means when ``backward`` returns: there is nothing left to wait for."""
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self):
        """For a step after ``synchronize``."""
        self._skips = True
        try:
            yield
        finally:
            self._skips = False

    def step(self, *args, **kwargs):
        if self._synchronized and not self._skips:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(): Horovod would exchange the gradients again",
                stacklevel=2,
            )
        self._synchronized = False
        return super().step(*args, **kwargs)

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

    def __init__(self, named, optimizer, group):
        self.optimizer = optimizer
        super().__init__(named, group, 25 << 20, zero_missing=True)
        self._reducer.set_decision(self._weak(lambda reducer: reducer.optimizer()._count()))

    def reset(self):
        """Resets to the state before the first pass."""
        self.before_forward(True)


def _divided_twice(state, bucket):
    """Divides a bucket before and after the sum, for a mean that cannot overflow."""
    group, factor = state
    buffer, size = bucket.buffer(), dist.get_world_size(group)
    sent = dist.all_reduce(buffer.div_(factor), Sum, group=group, async_op=True)
    return sent.get_future().then(lambda future: future.value()[0].mul_(factor / size))


def _sum_in_half(group, bucket):
    """Sends a bucket as float16, for a sum."""
    buffer = bucket.buffer()
    sent = dist.all_reduce(buffer.to(_C.float16), Sum, group=group, async_op=True)
    return sent.get_future().then(lambda future: buffer.copy_(future.value()[0]))


def DistributedOptimizer(
    optimizer, named_parameters=None, compression=Compression.none, backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0,
    num_groups=0, groups=None, sparse_as_dense=False, process_set=global_process_set,
):
    """The optimizer, with gradients exchanged at the end of every ``backward``. Buckets follow from sizes: ``groups`` are not needed. Processes outside a
    ``process_set`` keep their own gradients."""
    import weakref

    _ready()
    if op not in (Average, Sum):
        raise NotImplementedError(f"DistributedOptimizer: op must be Average or Sum, not {op}")
    if gradient_predivide_factor != 1.0 and (op != Average or compression is not Compression.none):
        raise ValueError("gradient_predivide_factor needs op=Average without compression")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be > 0")
    owned = [p for group in optimizer.param_groups for p in group["params"]]
    named = list(named_parameters) if named_parameters is not None else [(f"allreduce.noname.{i}", p) for i, p in enumerate(owned)]
    names = [name for name, _ in named]
    if len(set(names)) != len(names):
        raise ValueError("Parameter names in named_parameters must be unique.")
    if any(not any(p is q for _, q in named) for p in owned):
        raise ValueError("named_parameters was specified, but one or more model parameters were not named.")
    if not process_set.included():
        return optimizer
    kind = type(optimizer)
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), {"__module__": kind.__module__})
    optimizer.set_backward_passes_per_step(backward_passes_per_step)
    group = process_set._group() or dist.group.WORLD
    reducer = _StepReducer([(n, p) for n, p in named if p.requires_grad], weakref.ref(optimizer), group)
    if compression is Compression.fp16:
        reducer.hook = (_sum_in_half, group) if op == Sum else (fp16_compress_hook, group)
    elif gradient_predivide_factor != 1.0:
        reducer.hook = (_divided_twice, (group, gradient_predivide_factor))
    elif op == Sum:
        reducer.set_divisor(1)
    optimizer._reducer = reducer
    optimizer._parameter_names = {parameter: name for name, parameter in named}
    return optimizer
