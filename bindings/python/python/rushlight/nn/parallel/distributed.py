"""``DistributedDataParallel``: every rank trains a copy of the model on its own part of the data."""

from __future__ import annotations

import contextlib
import os

from ... import _C
from ...distributed import _collectives as dist
from ...distributed import _group, _objects
from ...distributed.algorithms.join import Joinable
from ..modules.module import Module
from ._reducer import Reducer

__all__ = ["DistributedDataParallel"]

_MIB = _MB_TO_BYTES = 1 << 20
_DEFAULT_BUCKET_CAP_MB = 25

#: Variables that programs print when ranks do not meet.
_VARIABLES = """RANK LOCAL_RANK WORLD_SIZE MASTER_PORT MASTER_ADDR CUDA_VISIBLE_DEVICES GLOO_SOCKET_IFNAME GLOO_DEVICE_TRANSPORT NCCL_SOCKET_IFNAME
NCCL_TOPO_DUMP_FILE TORCH_NCCL_BLOCKING_WAIT NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_IB_DISABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_SHM_DISABLE
NCCL_SOCKET_NTHREADS NCCL_NSOCKS_PERTHREAD NCCL_BUFFSIZE NCCL_NTHREADS NCCL_RINGS NCCL_MAX_NCHANNELS NCCL_MIN_NCHANNELS NCCL_NET_GDR_LEVEL
TORCH_NCCL_ASYNC_ERROR_HANDLING"""


def _dump_DDP_relevant_env_vars():
    """Prints the variables of launchers and communication libraries."""
    for name in _VARIABLES.split():
        print(f"env:{name}={os.environ.get(name, 'N/A')}")


def _tensors(value):
    """The tensors in an output: alone, or in lists, tuples, dictionaries and data classes."""
    if isinstance(value, _C.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _tensors(getattr(value, name))


def _moved(value, device):
    """Inputs on a device."""
    if isinstance(value, _C.Tensor):
        return value.to(device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(item, device) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item, device) for item in value)
    if isinstance(value, dict):
        return type(value)((key, _moved(item, device)) for key, item in value.items())
    return value


class DistributedDataParallel(Module, Joinable):
    """A module whose gradients are the means over all ranks of a group when ``backward`` returns.

    Gradients are sent in buckets while backward runs. All ranks start from rank 0's parameters; names, shapes and dtypes are compared first.

    >>> import rushlight as torch
    >>> torch.distributed.init_process_group(rank=0, world_size=1)
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    >>> list(model.state_dict())
    ['module.weight', 'module.bias']
    >>> torch.distributed.destroy_process_group()
    """

    def __init__(
        self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True, init_sync=True, process_group=None, bucket_cap_mb=None,
        find_unused_parameters=False, check_reduction=False, gradient_as_bucket_view=False, static_graph=False, delay_all_reduce_named_params=None,
        param_to_hook_all_reduce=None, mixed_precision=None, device_mesh=None, skip_all_reduce_unused_params=False,
    ):
        super().__init__()
        for name, value in (
            ("delay_all_reduce_named_params", delay_all_reduce_named_params), ("param_to_hook_all_reduce", param_to_hook_all_reduce),
            ("mixed_precision", mixed_precision), ("skip_all_reduce_unused_params", skip_all_reduce_unused_params or None),
        ):
            if value is not None:
                raise NotImplementedError(f"DistributedDataParallel: {name} is not supported")
        if process_group is not None and device_mesh is not None:
            raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
        if device_mesh is not None:
            process_group = device_mesh.get_group()
        self.process_group = _group._resolve(process_group)
        if _group._rank_not_in_group(self.process_group):
            raise ValueError("DistributedDataParallel: this rank is not in the group")
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        if bucket_cap_mb is not None and bucket_cap_mb <= 0:
            raise ValueError(f"DistributedDataParallel: bucket_cap_mb must be positive, not {bucket_cap_mb}")
        self.module = module
        self.dim, self.broadcast_buffers = dim, broadcast_buffers
        self.find_unused_parameters, self.static_graph, self.gradient_as_bucket_view = find_unused_parameters, static_graph, gradient_as_bucket_view
        self._passes, self._error = 0, None
        self.bucket_bytes_cap = int((_DEFAULT_BUCKET_CAP_MB if bucket_cap_mb is None else bucket_cap_mb) * _MIB)
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._joining = self._joins_throw = False
        trained = self._trained()
        if not trained:
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient.")
        devices = {p.device.type for _, p in trained}
        if device_ids and len(devices) > 1:
            raise ValueError(f"device_ids and output_device arguments only work with modules on one device; this one has parameters on {sorted(devices)}")
        self.device = trained[0][1].device
        self.device_type = self.device.type
        self.device_ids, self.output_device = device_ids, output_device
        # By name: a buffer may be assigned another tensor.
        self._buffer_places = self._find_buffers()
        if init_sync:
            self._verify()
            self._broadcast([t.detach() for _, t in self._state()], 0)
        self._make_reducer()

    def _make_reducer(self):
        self.reducer = Reducer(
            self._trained(), self.process_group, self.bucket_bytes_cap, self.gradient_as_bucket_view, self.find_unused_parameters, self.static_graph
        )

    def _trained(self):
        return [(n, p) for n, p in self.module.named_parameters() if p.requires_grad and n not in self.parameters_to_ignore]

    def _find_buffers(self):
        """The places of the buffers that all ranks share: a module's own dictionary, and the name in it."""
        places = []
        for prefix, module in self.module.named_modules():
            for name in module._buffers:
                if f"{prefix}.{name}".lstrip(".") not in self.parameters_to_ignore:
                    places.append((module._buffers, name))
        return places

    def _share_buffers(self, root):
        """Copies a rank's buffers to all ranks."""
        if self._buffer_places:
            self._broadcast([b[name].detach() for b, name in self._buffer_places if b.get(name) is not None], root)

    def _state(self):
        """Parameters and buffers that all ranks share."""
        both = [*self.module.named_parameters(), *self.module.named_buffers()]
        return [(n, t) for n, t in both if n not in self.parameters_to_ignore]

    def _verify(self):
        """Compares names, dtypes and shapes with the other ranks'."""
        if self.process_group.size() == 1:
            return
        own = [f"{n}: {t.dtype} {tuple(t.shape)}{'' if t.requires_grad else ', no gradient'}" for n, t in self._state()]
        lists = [None] * self.process_group.size()
        _objects.all_gather_object(lists, own, group=self.process_group)
        ranks = _group.get_process_group_ranks(self.process_group)
        for rank, other in zip(ranks, lists):
            if other != lists[0]:
                pairs = zip([*lists[0], *["nothing more"] * len(other)], [*other, *["nothing more"] * len(lists[0])])
                first, theirs = next(pair for pair in pairs if pair[0] != pair[1])
                raise RuntimeError(
                    f"DistributedDataParallel: the ranks have different modules: rank {ranks[0]} has {first}, rank {rank} has {theirs}"
                )

    def _broadcast(self, tensors, root):
        if tensors and self.process_group.size() > 1:
            self.process_group._group.submit("broadcast", tensors, [], ("sum", root), False)

    def forward(self, *inputs, **kwargs):
        recording = _C.is_grad_enabled()
        root = 0
        if recording:
            self._passes += 1
            self.reducer.before_forward(self.require_backward_grad_sync)
            if self._joining and self.require_backward_grad_sync:
                active = self._active(True)
                if self._joins_throw and not all(active):
                    raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
                root = active.index(1)
        if self.broadcast_buffers and self.require_forward_param_sync and (recording or not self._joining):
            self._share_buffers(root)
        if self.device_ids:
            inputs, kwargs = _moved(inputs, self.device), _moved(kwargs, self.device)
        output = self.module(*inputs, **kwargs)
        if recording:
            self.require_forward_param_sync = self.require_backward_grad_sync
            if self.find_unused_parameters:
                self.reducer.after_forward(list(_tensors(output)))
        return output

    def _get_ddp_logging_data(self):
        """The available part of the log of PyTorch's reducer: Lightning reads whether the graph could be static."""
        errors = {} if self._error is None else {"has_error": 1, "error": self._error}
        return {"module_name": type(self.module).__name__, "can_set_static_graph": False, "iteration": self._passes, **errors}

    @contextlib.contextmanager
    def no_sync(self):
        """Within, gradients accumulate on this rank without all-reduce, until a later pass outside."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state, hook):
        """Makes ``hook(state, bucket)`` send each bucket. It returns a future of the bucket's new contents."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.reducer.hook = (hook, state)

    def _set_static_graph(self):
        if self._passes:
            self._error = "set_static_graph() should be called before training loop starts and after DistributedDataParallel is constructed."
            raise RuntimeError(self._error)
        self.static_graph = True
        self.reducer.set_static_graph()

    # Uneven inputs.

    @property
    def join_process_group(self):
        return self.process_group

    @property
    def join_device(self):
        return self.device

    def _active(self, has_inputs):
        """The ranks that begin a pass now."""
        flags = _C._torch.zeros(self.process_group.size(), dtype=_C.int64)
        dist.all_gather_into_tensor(flags, _C.tensor([int(has_inputs)]), self.process_group)
        flags = flags.tolist()
        self.reducer.set_divisor(None if self._divides_by_all else max(1, sum(flags)))
        return flags

    @contextlib.contextmanager
    def join(self, divide_by_initial_world_size=True, enable=True, throw_on_early_termination=False):
        """Training with inputs that are uneven over the ranks.

        A rank that is done shadows the others with gradients of zero until the last is done. Then all ranks copy that rank's parameters.
        """
        if not enable or self.process_group.size() == 1:
            yield
            return
        self._joining, self._joins_throw, self._divides_by_all = True, throw_on_early_termination, divide_by_initial_world_size
        try:
            yield
            self._go_along(throw_on_early_termination)
        finally:
            self._joining = self._joins_throw = False
            self.reducer.set_divisor(None)

    def _go_along(self, throw):
        last = self.process_group.size()
        while True:
            active = self._active(False)
            if not any(active):
                break
            if throw:
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
            last = active.index(1)
            if self.broadcast_buffers:
                self._share_buffers(last)
            self.reducer.shadow()
        # Several ranks may have trained to the end: they agree on the first of them.
        found = _C.tensor([last])
        dist.all_reduce(found, dist.ReduceOp.MIN, self.process_group)
        if found.item() < self.process_group.size():
            self._broadcast([t.detach() for _, t in self._state()], found.item())

    # Copies and pickles do not contain the group; when restored they use the group of all ranks.

    def __getstate__(self):
        state = dict(self.__dict__)
        for name in ("process_group", "reducer", "_buffer_places"):
            state.pop(name)
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        self.process_group = _group._get_default_group()
        self._buffer_places = self._find_buffers()
        self._make_reducer()
