"""Process groups: the world and its subgroups."""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
from datetime import timedelta

from .. import _C
from ._stores import PrefixStore, Store, _seconds

__all__ = [
    "Backend", "BackendConfig", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "GroupMember", "ProcessGroup",
    "QueueEmptyError", "abort_process_group", "default_pg_timeout", "destroy_process_group", "get_backend", "get_backend_config",
    "get_default_backend_for_device", "get_global_rank", "get_group_rank", "get_node_local_rank", "get_pg_count", "get_process_group_ranks",
    "get_rank", "get_world_size", "group", "init_process_group", "is_available", "is_backend_available", "is_gloo_available",
    "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "is_ucc_available", "is_xccl_available",
    "new_group", "new_subgroups", "new_subgroups_by_enumeration",
]

default_pg_timeout = timedelta(minutes=30)

DistError = _C._DistError
DistBackendError = _C._DistBackendError
DistNetworkError = _C._DistNetworkError
DistStoreError = _C._DistStoreError


class QueueEmptyError(DistStoreError):
    """Raised for an empty queue of a store."""


class Backend(str):
    """The name of a backend. Every name selects the best available engine."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    UCC = "ucc"
    XCCL = "xccl"
    CCL = "ccl"
    TCP = "tcp"
    FAKE = "fake"

    backend_list = ["undefined", "gloo", "nccl", "xccl", "ucc", "mpi", "ccl", "tcp"]
    default_device_backend_map = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl", "mps": "gloo"}

    def __new__(cls, name):
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name!r}")
        return str.__new__(cls, name.lower())

    _plugins = {}

    @classmethod
    def register_backend(cls, name, func, extended_api=False, devices=None):
        """Remembers the name of another backend, so that packages which bring one can be imported. It cannot be chosen: the built-in engine moves
        all data."""
        if hasattr(cls, name.upper()):
            raise RuntimeError(f"register_backend: {name.lower()} is a backend already")
        setattr(cls, name.upper(), name.lower())
        cls.backend_list.append(name.lower())
        cls._plugins[name.upper()] = func


_ACCEPTED = {"gloo", "nccl", "mpi", "ccl", "xccl", "ucc", "tcp", "undefined"}


def _backend_name(backend):
    """Checks a backend's name or a list such as ``cpu:gloo,cuda:nccl``, and returns it as the program sees it."""
    if backend is None or str(backend).lower() == "undefined":
        return Backend("nccl" if _has_accelerator() else "gloo")
    name = str(backend).lower()
    for part in name.split(","):
        kind = part.rpartition(":")[2]
        if kind.upper() in Backend._plugins:
            raise NotImplementedError(f"init_process_group: the backend '{kind}' is a plugin, which cannot serve here; use gloo, nccl, mpi, ccl or xccl")
        if kind not in _ACCEPTED:
            raise ValueError(f"init_process_group: unknown backend '{backend}'; gloo, nccl, mpi, ccl, xccl and tcp are known, and lists such as cpu:gloo,cuda:nccl")
    return Backend(name)


def _has_accelerator():
    from .. import cuda

    return cuda.is_available()


class BackendConfig:
    """The backend of each device type."""

    def __init__(self, backend):
        self.device_backend_map = {}
        for part in str(backend).split(","):
            device, _, kind = part.rpartition(":")
            for name in [device] if device else ("cpu", "cuda", "xpu"):
                self.device_backend_map[name] = Backend(kind)

    def __repr__(self):
        return ",".join(f"{device}:{backend}" for device, backend in self.device_backend_map.items())

    def get_device_backend_map(self):
        return self.device_backend_map


def _single(tensors):
    """The tensor of an argument that is one tensor or a list of one."""
    if isinstance(tensors, (list, tuple)):
        if len(tensors) != 1:
            raise ValueError(f"expected a tensor or a list of one, got a list of {len(tensors)}")
        return tensors[0]
    return tensors


def _reduction(op):
    """The reduction of an argument: a ``ReduceOp``, or PyTorch's options with one."""
    return () if op is None else (getattr(op, "reduceOp", op),)


class ProcessGroup:
    """A group of ranks. ``init_process_group`` and ``new_group`` create it."""

    def __init__(self, group, backend, description=""):
        self._group = group
        self._backend = backend
        #: Receives that are posted but not started (``_p2p``).
        self._receives = []
        self._barriers = 0
        self.group_name = group.name
        self.group_desc = description or group.name
        self.bound_device_id = None

    def rank(self):
        """This rank in the group."""
        return self._group.rank

    def size(self):
        """Number of ranks."""
        return self._group.size

    def name(self):
        """The backend's name."""
        return str(self._backend)

    def _timeout(self):
        return self._group.timeout

    def _start(self, call, *args, **kwargs):
        """A function of ``torch.distributed`` on this group, as a handle."""
        from . import _collectives, _p2p

        function = getattr(_collectives, call, None) or getattr(_p2p, call)
        return function(*args, group=self, **kwargs)

    # The methods by which communication hooks and libraries call a group. They return handles at once. Roots are ranks
    # of the group.

    def allreduce(self, tensors, op=None):
        """``all_reduce`` of a tensor, or of each tensor of a list."""
        return self._start("all_reduce_coalesced", tensors, *_reduction(op), async_op=True)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors, root=0):
        """``broadcast`` of a tensor, or of the one tensor of a list."""
        return self._start("broadcast", _single(tensors), group_src=root, async_op=True)

    def reduce(self, tensors, root=0, op=None):
        """``reduce`` of a tensor, or of the one tensor of a list."""
        return self._start("reduce", _single(tensors), None, *_reduction(op), group_dst=root, async_op=True)

    def allgather(self, output_tensors, input_tensors):
        """``all_gather`` of a tensor to a list of tensors, each given in a list of one or as it is."""
        outputs = output_tensors[0] if isinstance(output_tensors[0], (list, tuple)) else output_tensors
        return self._start("all_gather", list(outputs), _single(input_tensors), async_op=True)

    def _allgather_base(self, output, input):
        """``all_gather_into_tensor``."""
        return self._start("all_gather_into_tensor", output, input, async_op=True)

    def reduce_scatter(self, output_tensors, input_tensors, op=None):
        """``reduce_scatter`` of a list of tensors, each given in a list of one or as it is."""
        inputs = input_tensors[0] if isinstance(input_tensors[0], (list, tuple)) else input_tensors
        return self._start("reduce_scatter", _single(output_tensors), list(inputs), *_reduction(op), async_op=True)

    def _reduce_scatter_base(self, output, input, op=None):
        """``reduce_scatter_tensor``."""
        return self._start("reduce_scatter_tensor", output, input, *_reduction(op), async_op=True)

    def gather(self, output_tensors, input_tensors, root=0):
        """``gather``: the root's list of outputs, in a list of one; others pass an empty list."""
        outputs = list(output_tensors[0]) if output_tensors else None
        return self._start("gather", _single(input_tensors), outputs, group_dst=root, async_op=True)

    def scatter(self, output_tensors, input_tensors, root=0):
        """``scatter``: the root's list of inputs, in a list of one; others pass an empty list."""
        inputs = list(input_tensors[0]) if input_tensors else None
        return self._start("scatter", _single(output_tensors), inputs, group_src=root, async_op=True)

    def alltoall(self, output_tensors, input_tensors):
        """``all_to_all``."""
        return self._start("all_to_all", list(output_tensors), list(input_tensors), async_op=True)

    def alltoall_base(self, output, input, output_split_sizes=None, input_split_sizes=None):
        """``all_to_all_single``."""
        return self._start("all_to_all_single", output, input, output_split_sizes or None, input_split_sizes or None, async_op=True)

    def send(self, tensors, dst, tag=0):
        """``isend`` of a tensor, or of the one tensor of a list."""
        return self._start("isend", _single(tensors), group_dst=dst, tag=tag)

    def recv(self, tensors, src, tag=0):
        """``irecv`` to a tensor, or to the one tensor of a list."""
        return self._start("irecv", _single(tensors), group_src=src, tag=tag)

    def recv_anysource(self, tensors, tag=0):
        """``irecv`` from any rank."""
        return self._start("irecv", _single(tensors), tag=tag)

    def barrier(self):
        """``barrier``."""
        return self._start("barrier", async_op=True)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """``torch.distributed.monitored_barrier`` of this group."""
        from ._collectives import monitored_barrier

        return monitored_barrier(self, timeout, wait_all_ranks)

    def flight_record(self):
        """The last collectives of this rank, as JSON: description, stage and duration."""
        return self._group.flight_record()

    def __repr__(self):
        return f"<ProcessGroup {self.group_name}: rank {self.rank()} of {self.size()}, backend {self._backend}>"

    def __reduce__(self):
        raise TypeError("a process group cannot be pickled: it belongs to this process")


class _Shared:
    """This process's state of its world."""

    def __init__(self):
        self.world = None
        self.default_pg = None
        self.store = None
        #: The program's own store. It outlives the world, as in PyTorch: a file that is removed with its last user may
        #: be the program's to remove.
        self.given = None
        #: Groups in the order of their making, each with its backend and store.
        self.pg_map = {}
        self.inits = 0
        self.hooked = False
        self.process = None


_world = _Shared()


class _WorldMeta(type):
    @property
    def WORLD(cls):
        return _world.default_pg

    @WORLD.setter
    def WORLD(cls, group):
        _world.default_pg = group


class group(metaclass=_WorldMeta):
    """``group.WORLD``: the group of all ranks; None before ``init_process_group``."""


class GroupMember(metaclass=_WorldMeta):
    """``GroupMember.WORLD``, and the value for ranks outside a new group."""

    NON_GROUP_MEMBER = -100


def is_available():
    """Whether process groups are supported: always True."""
    return True


def is_initialized():
    """Whether ``init_process_group`` was called."""
    return _world.default_pg is not None


def is_backend_available(backend):
    """Whether a backend can be selected."""
    return str(backend).lower() in _ACCEPTED


def is_gloo_available():
    return True


def is_mpi_available():
    """Whether MPI serves this process: an MPI launcher started it, or mpi4py has initialised MPI. A library that is merely installed does not count."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        return True
    try:
        return _C._detect_launch()["mpi"]
    except ValueError:
        return False


def is_nccl_available():
    return True


def is_xccl_available():
    return True


def is_ucc_available():
    return False


def is_torchelastic_launched():
    """Whether torchrun started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def _get_default_group():
    if _world.default_pg is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return _world.default_pg


def _get_default_store():
    _get_default_group()
    return _world.store


def _set_pg_timeout(timeout, group=None):
    """Changes the timeout of a group's collectives that start from now on."""
    _resolve(group)._group.set_timeout(timeout.total_seconds())


def _resolve(pg):
    """The group of a ``group`` argument."""
    if pg is None:
        return _get_default_group()
    if pg is GroupMember.NON_GROUP_MEMBER or isinstance(pg, ProcessGroup):
        return pg
    raise TypeError(f"Invalid type specified for the group argument: expected a process group, got {type(pg).__name__}")


def _rank_not_in_group(group):
    return group is not None and group == GroupMember.NON_GROUP_MEMBER


def _not_member(call):
    warnings.warn(f"Running {call} on global rank {get_rank()} which does not belong to the given group.", stacklevel=3)


def init_process_group(
    backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="", pg_options=None, device_id=None, _ranks=None,
):
    """Meets the other processes of the job.

    Rank and world size are the launcher's (torchrun, srun, mpiexec, PALS and others) unless they are given; a program without a launcher is alone.
    ``init_method`` is ``env://`` (the default), ``tcp://host:port`` or ``file:///path``; ``store`` takes its place. ``mpi`` is the system's MPI, opened
    at run time. Other backends are only names: the best available engine without MPI serves all of them. ``device_id``, ``pg_options`` and ``group_name`` do not change this.
    """
    if _world.default_pg is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if _ranks:
        raise NotImplementedError("init_process_group: _ranks is not supported; use new_group")
    if store is not None and init_method is not None:
        raise ValueError("Cannot specify both init_method and store.")
    if store is not None and (world_size is None or world_size < 1 or rank is None or rank < 0):
        raise ValueError("world_size must be positive and rank non-negative if using store")
    if store is not None and not isinstance(store, Store):
        raise TypeError(f"init_process_group: store must be a TCPStore, FileStore, HashStore or PrefixStore, not {type(store).__name__}")
    name = _backend_name(backend)
    seconds = _seconds(default_pg_timeout if timeout is None else timeout)
    method, given_rank, given_size = _method(init_method)
    rank = given_rank if rank is None or rank < 0 else rank
    world_size = given_size if world_size is None or world_size < 0 else world_size
    meeting = None if store is None else PrefixStore(f"init/{_world.inits}", store)._store
    world = _meet(method, seconds, rank, world_size, meeting, _engine(name))
    _world.inits += 1
    _world.given = store
    _world.world, _world.process = world, os.getpid()
    _world.store = Store._around(world.store())
    _world.default_pg = ProcessGroup(world.group(), name, "default_pg")
    _world.pg_map[_world.default_pg] = (name, _world.store)
    if not _world.hooked:
        _world.hooked = True
        sys.excepthook = _ending_all(sys.excepthook)


def _ending_all(former):
    """An ``excepthook`` by which an uncaught exception ends all ranks of an MPI job. Without it mpi4py waits for the others in ``MPI_Finalize``, and they
    wait for this rank in their next collective, for as long as the group's timeout."""

    def hook(kind, error, trace):
        former(kind, error, trace)
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is None or _world.default_pg is None or _world.process != os.getpid():
            return
        if mpi.Is_initialized() and not mpi.Is_finalized() and mpi.COMM_WORLD.Get_size() > 1:
            print(f"rank {mpi.COMM_WORLD.Get_rank()} has failed, as said above: all ranks are ended (MPI_Abort)", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            _wait_for_readers(1, 2)
            mpi.COMM_WORLD.Abort(1)

    return hook


def _wait_for_readers(*descriptors):
    """Waits up to a second until the launcher has read its pipes: MPICH drops unread output when it ends a job."""
    import fcntl
    import stat
    import struct
    import termios

    last = time.monotonic() + 1.0
    for descriptor in descriptors:
        try:
            while stat.S_ISFIFO(os.fstat(descriptor).st_mode) and time.monotonic() < last:
                if struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0] == 0:
                    break
                time.sleep(0.001)
        except OSError:
            continue


def _engine(name):
    """The core's name of a backend, or of a list of backends by device."""
    return ",".join("gloo" if part in ("ucc", "undefined") else part for part in (p.rpartition(":")[2] for p in str(name).split(",")))


def _meet(*arguments):
    """The world. Retries if the store of a previous world of this process answers while it closes."""
    stale = ("is lost", f"process {os.getpid()} on ")
    deadline = time.monotonic() + 10
    while True:
        try:
            return _C._World(*arguments)
        except (DistNetworkError, DistStoreError, ValueError) as error:
            if not _world.inits or not any(text in str(error) for text in stale) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _method(init_method):
    """An ``init_method`` in the core's form, with the rank and world size of its query."""
    if init_method is None:
        return "env://", None, None
    if not isinstance(init_method, str):
        raise TypeError(f"init_process_group: init_method must be a string, not {type(init_method).__name__}")
    from urllib.parse import parse_qs, urlsplit

    parts = urlsplit(init_method)
    query = {key: int(values[-1]) for key, values in parse_qs(parts.query).items() if key in ("rank", "world_size")}
    method = init_method.partition("?")[0]
    return method, query.get("rank"), query.get("world_size")


def destroy_process_group(group=None):
    """Leaves the job, or a group."""
    if group is not None and group is not _world.default_pg:
        if group is not GroupMember.NON_GROUP_MEMBER:
            _world.pg_map.pop(group, None)
        return
    _get_default_group()
    world = _world.world
    _world.world = _world.default_pg = _world.store = None
    _world.pg_map.clear()
    world.close()


def abort_process_group(group=None):
    """Leaves the job abruptly: the other ranks' collectives fail at once and name this one."""
    if group is None or group is _world.default_pg:
        _get_default_group()
        _world.world.abandon()
        _world.pg_map.clear()
        _world.world = _world.default_pg = _world.store = None
    else:
        destroy_process_group(group)


@atexit.register
def _at_exit():
    world = _world.world
    if world is None or _world.process != os.getpid():
        return
    # A program that ends with an exception has failed: the other ranks must see a failure.
    if getattr(sys, "last_exc", None) is not None or getattr(sys, "last_value", None) is not None:
        world.abandon()
    else:
        world.close()


def get_rank(group=None):
    """This rank in the group; -1 if it is not in it."""
    pg = _resolve(group)
    return -1 if _rank_not_in_group(pg) else pg.rank()


def get_world_size(group=None):
    """Number of ranks of the group; -1 if this one is not in it."""
    pg = _resolve(group)
    return -1 if _rank_not_in_group(pg) else pg.size()


def get_backend(group=None):
    """The name of the requested backend."""
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        raise ValueError("Invalid process group specified")
    return pg._backend


def get_backend_config(group=None):
    """The backend of each device type, as text."""
    return repr(BackendConfig(get_backend(group)))


def get_default_backend_for_device(device):
    """The default backend of a device type."""
    kind = device.type if hasattr(device, "type") else str(device).partition(":")[0]
    found = Backend.default_device_backend_map.get(kind)
    if found is None:
        raise ValueError(f"Default backend not registered for device : {kind}")
    return found


def get_process_group_ranks(group):
    """Ranks of the world that are in a group, in its order."""
    return list(_resolve(group)._group.ranks)


def get_group_rank(group, global_rank):
    """A rank of the world as a rank of the group."""
    ranks = get_process_group_ranks(group)
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return ranks.index(global_rank)


def get_global_rank(group, group_rank):
    """A rank of the group as a rank of the world."""
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return ranks[group_rank]


def get_node_local_rank(fallback_rank=None):
    """This rank's index on its node, from the launcher."""
    text = os.environ.get("LOCAL_RANK")
    found = int(text) if text is not None else _C._detect_launch()["local_rank"]
    if found is None:
        found = fallback_rank
    if found is None:
        raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work")
    return int(found)


def get_pg_count():
    """Number of groups this rank is in."""
    return len(_world.pg_map)


def _get_pg_default_device(group=None):
    return _C.device("cpu")


def new_group(ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False, group_desc=None, device_id=None):
    """A group of some ranks, all unless given. Every rank of the world must call this, in the same order of calls."""
    default = _get_default_group()
    if use_local_synchronization:
        raise NotImplementedError("new_group: use_local_synchronization=True is not supported; have every rank of the world call new_group")
    ranks = list(range(default.size())) if ranks is None else [int(r) for r in ranks]
    name = default._backend if backend is None else _backend_name(backend)
    made = _world.world.new_group(ranks, _seconds(timeout))
    if made is None:
        return GroupMember.NON_GROUP_MEMBER
    pg = ProcessGroup(made, name, group_desc or "")
    _world.pg_map[pg] = (pg._backend, _world.store)
    return pg


def new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout=None, backend=None, pg_options=None, group_desc=None):
    """Groups of the given lists of ranks; this rank's and all of them."""
    lists = [list(ranks) for ranks in ranks_per_subgroup_list]
    if not lists or any(not ranks for ranks in lists):
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    seen = [r for ranks in lists for r in ranks]
    if len(set(seen)) != len(seen):
        raise ValueError("new_subgroups_by_enumeration: a rank is in two groups")
    rank, own, made = get_rank(), None, []
    for ranks in lists:
        pg = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        made.append(pg)
        if rank in ranks:
            own = pg
    return own, made


def new_subgroups(group_size=None, group=None, timeout=None, backend=None, pg_options=None, group_desc=None):
    """Groups of ``group_size`` neighbours; this rank's and all of them."""
    if group is not None and group is not _world.default_pg:
        raise NotImplementedError("new_subgroups: only the group of all ranks can be divided")
    size = get_world_size()
    if group_size is None:
        group_size = (_C._detect_launch()["local_size"] or size) if size > 1 else 1
    if group_size <= 0 or size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by group_size={group_size}")
    lists = [list(range(first, first + group_size)) for first in range(0, size, group_size)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)
