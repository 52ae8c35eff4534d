"""What ``torch.cuda``, ``torch.xpu``, ``torch.mps`` and ``torch.accelerator`` have in common.

``cuda``, ``xpu`` and ``hip`` name the accelerator there is. Without one ``is_available`` says so, and other questions are answered for the CPU,
which the names then mean. ``RUSHLIGHT_DEVICE`` (set by ``python -m rushlight --device``) can hide accelerators (``cpu``), or have ``is_available``
answer yes where there is none (``cuda``, ``xpu``, ``hip``), for scripts that refuse to run otherwise.
"""

import os
import time

from . import _C

#: Kinds of accelerators that are to be taken for available.
pretend = {{"hip": "cuda"}.get(kind, kind) for kind in (os.environ.get("RUSHLIGHT_DEVICE"),) if kind in ("cuda", "xpu", "hip")}


def count(kind):
    """How many devices of a kind there are, or are to be taken for there."""
    if kind == "accelerator":
        return _C._device_count() or int(bool(pretend))
    found = 0 if kind == "mps" else _C._device_count()
    return found or int(kind in pretend)


def place(kind, device=None):
    """The device that an argument of a device's function means: an accelerator, or the CPU where there is none."""
    if kind == "cpu" or not _C._device_count():
        return "cpu"
    if device is None:
        return f"cuda:{_C._current_device()}"
    return f"cuda:{device}" if isinstance(device, int) else device


def _index(device):
    if device is None:
        return _C._current_device()
    if isinstance(device, int):
        return device
    index = _C.device(device).index
    return _C._current_device() if index is None else index


class Event:
    """A point in the work of a device. Recording waits for the work before it, so that an event is a time."""

    def __init__(self, device=None, *, enable_timing=False, blocking=False, interprocess=False, external=False):
        self._time = None

    def record(self, stream=None):
        _C._synchronize(place("cuda"))
        self._time = time.perf_counter()

    def query(self):
        return True

    def synchronize(self):
        pass

    def wait(self, stream=None):
        pass

    def elapsed_time(self, end_event):
        if self._time is None or end_event._time is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1e3


class Stream:
    """A queue of work. A device has one, in which calls are done in their order: all streams are that one."""

    def __init__(self, device=None, priority=0, **kwargs):
        self.device, self.priority = _C.device(place("cuda", device)), priority

    def synchronize(self):
        _C._synchronize(self.device)

    def query(self):
        self.synchronize()
        return True

    def wait_stream(self, stream):
        pass

    def wait_event(self, event):
        pass

    def record_event(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def __eq__(self, other):
        return isinstance(other, Stream) and self.device == other.device

    def __hash__(self):
        return hash(self.device)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


class DeviceProperties:
    """What is known of a device."""

    def __init__(self, kind, device=None):
        self._kind = kind
        if kind != "cpu" and _C._device_count():
            self.name, self.total_memory, self.multi_processor_count, (self.major, self.minor) = _C._device_properties(_index(device))
            self.is_integrated = False
        else:
            self.name, self.multi_processor_count, self.major, self.minor = cpu_name(), os.cpu_count(), 0, 0
            self.total_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
            self.is_integrated = True
        self.is_multi_gpu_board = False

    def __repr__(self):
        return (
            f"_{self._kind.capitalize()}DeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, multi_processor_count={self.multi_processor_count})"
        )


def cpu_name():
    """The processor's name."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    import platform

    return platform.processor() or platform.machine()


def _notice(kind):
    """Says once that an accelerator's name means the CPU, where it does."""
    if not pretend and not _C._device_count():
        _C.device(kind).__enter__()
        _C.device(kind).__exit__()


class _Device:
    """A context with a device in use."""

    def __init__(self, device=None):
        self.idx = None if device is None or isinstance(device, _C.Tensor) and device.is_cpu else _index(getattr(device, "device", device))

    def __enter__(self):
        self._before = _C._current_device()
        if self.idx is not None and self.idx >= 0 and _C._device_count():
            _C._set_device(self.idx)
        return self

    def __exit__(self, *exception):
        if _C._device_count():
            _C._set_device(self._before)


class _Queue:
    """A context with a stream in use: it is in use anyway."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        return self.stream

    def __exit__(self, *exception):
        pass


def functions(kind):
    """The functions of a device's package."""

    def is_available():
        """Whether there is such a device."""
        return count(kind) > 0

    def device_count():
        """How many such devices there are."""
        return count(kind)

    def current_device():
        """The number of the device in use."""
        _notice(kind)
        return _C._current_device()

    def get_device_name(device=None):
        """The device's name."""
        return get_device_properties(device).name

    def get_device_properties(device=None):
        """What is known of the device."""
        _notice(kind)
        return DeviceProperties(kind, device)

    def get_device_capability(device=None):
        """The device's version, as two numbers."""
        found = get_device_properties(device)
        return found.major, found.minor

    def set_device(device):
        """Makes a device the one in use."""
        if _C._device_count() and _index(device) >= 0:
            _C._set_device(_index(device))

    def synchronize(device=None):
        """Waits for all work of the device."""
        _C._synchronize(place(kind, device))

    def empty_cache():
        """Gives memory kept for reuse back to the system."""
        _C._empty_cache(place(kind))

    def memory_allocated(device=None):
        """Bytes in tensors."""
        return _C._memory_stats(place(kind, device))[0]

    def max_memory_allocated(device=None):
        """The most bytes in tensors so far."""
        return _C._memory_stats(place(kind, device))[2]

    def memory_reserved(device=None):
        """Bytes held by the allocator."""
        return _C._memory_stats(place(kind, device))[1]

    def max_memory_reserved(device=None):
        """The most bytes held by the allocator, as far as it is known: what it holds now, or the most that was in tensors."""
        return max(_C._memory_stats(place(kind, device))[1:])

    def memory_stats(device=None):
        """Figures of the allocator."""
        allocated, reserved, peak = _C._memory_stats(place(kind, device))
        return {
            "allocated_bytes.all.current": allocated, "allocated_bytes.all.peak": peak,
            "reserved_bytes.all.current": reserved, "reserved_bytes.all.peak": max(reserved, peak),
        }

    def memory_summary(device=None, abbreviated=False):
        """Figures of the allocator, in words."""
        return "\n".join(f"{name}: {value}" for name, value in memory_stats(device).items())

    def mem_get_info(device=None):
        """Bytes that are not in tensors, and total bytes, of the device's memory."""
        total = DeviceProperties(kind, device).total_memory
        return max(total - memory_reserved(device), 0), total

    def reset_peak_memory_stats(device=None):
        """Starts measuring a new peak."""
        _C._reset_peak_memory(place(kind, device))

    def manual_seed(seed):
        """Seeds the default generator."""
        _C._manual_seed(seed)

    def manual_seed_all(seed):
        """Seeds the default generator."""
        _C._manual_seed(seed)

    def seed():
        """Seeds the default generator with a number nobody could guess."""
        _C.seed()

    def seed_all():
        """Seeds the default generator with a number nobody could guess."""
        _C.seed()

    def initial_seed():
        """The seed of the default generator."""
        return _C.initial_seed()

    def get_rng_state(device=None):
        """The state of the default generator, which all devices draw from."""
        return _C.get_rng_state()

    def set_rng_state(new_state, device=None):
        """Sets the state of the default generator, which all devices draw from."""
        _C.set_rng_state(new_state.cpu())

    def get_rng_state_all():
        """The states of the devices' generators."""
        return [_C.get_rng_state()] * count(kind)

    def set_rng_state_all(new_states):
        """Sets the states of the devices' generators."""
        for state in new_states:
            set_rng_state(state)

    def current_stream(device=None):
        """The queue in use."""
        return Stream(device)

    def default_stream(device=None):
        """The queue that is used by default."""
        return Stream(device)

    def set_stream(stream):
        """Makes a queue the one in use: it is."""

    def stream(stream):
        """A context with a queue in use."""
        return _Queue(stream)

    def is_bf16_supported(including_emulation=True):
        """Whether ops take bfloat16."""
        return True

    def init():
        """Nothing is left to be done."""

    def is_initialized():
        """Whether the device has been used."""
        return is_available()

    def ipc_collect():
        """Nothing is shared between processes."""

    def get_arch_list():
        """Architectures that were compiled for: kernels are compiled for the device when first used."""
        return []

    def is_current_stream_capturing():
        """Whether work is being captured: it never is."""
        return False

    def can_device_access_peer(device, peer_device):
        """Whether a device can read another's memory: copies go by way of the host."""
        return False

    reset_max_memory_allocated = reset_max_memory_cached = reset_accumulated_memory_stats = reset_peak_memory_stats
    memory_cached, max_memory_cached = memory_reserved, max_memory_reserved
    found = {name: f for name, f in locals().items() if callable(f) and not name.startswith("_")}
    for function in found.values():
        function.__module__ = f"rushlight.{kind}"
    return found | {"Event": Event, "Stream": Stream, "device": _Device, "device_of": _Device}
