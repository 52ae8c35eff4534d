"""What ``torch.cuda``, ``torch.xpu``, ``torch.mps`` and ``torch.accelerator`` have in common.

There is no accelerator in this build: ``is_available`` says so, and other questions are answered for the CPU, which the names mean. ``pretend`` (set by ``python -m rushlight --device``) makes
``is_available`` answer yes, for scripts that refuse to run otherwise.
"""

import time

from . import _C

#: Kinds of accelerators that are to be taken for available.
pretend = set()


class Event:
    """A point in the work of a device. Work on the CPU is done when its call returns, so an event is a time."""

    def __init__(self, device=None, *, enable_timing=False, blocking=False, interprocess=False, external=False):
        self._time = None

    def record(self, stream=None):
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
    """A queue of work. Calls on the CPU are done in their order."""

    def __init__(self, device=None, priority=0, **kwargs):
        self.device, self.priority = _C.device("cpu"), priority

    def synchronize(self):
        pass

    def query(self):
        return True

    def wait_stream(self, stream):
        pass

    def wait_event(self, event):
        pass

    def record_event(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


class DeviceProperties:
    """What is known of a device."""

    def __init__(self):
        import os

        self.name = cpu_name()
        self.major, self.minor = 0, 0
        self.multi_processor_count = os.cpu_count()
        self.total_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
        self.is_integrated, self.is_multi_gpu_board = True, False

    def __repr__(self):
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
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
    """Says once that an accelerator's name means the CPU."""
    if not pretend:
        _C.device(kind).__enter__()
        _C.device(kind).__exit__()


class _Here:
    """A context in which nothing changes: there is one device."""

    def __init__(self, *args):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


def functions(kind):
    """The functions of a device's package."""

    def is_available():
        """Whether there is such a device."""
        return kind in pretend

    def device_count():
        """How many such devices there are."""
        return 1 if kind in pretend else 0

    def current_device():
        """The number of the device in use."""
        _notice(kind)
        return 0

    def get_device_name(device=None):
        """The device's name."""
        _notice(kind)
        return cpu_name()

    def get_device_properties(device=None):
        """What is known of the device."""
        _notice(kind)
        return DeviceProperties()

    def get_device_capability(device=None):
        """The device's version, as two numbers."""
        _notice(kind)
        return (0, 0)

    def set_device(device):
        """Makes a device the one in use: there is one."""

    def synchronize(device=None):
        """Waits for the device: work on the CPU is done when its call returns."""

    def empty_cache():
        """Gives memory kept for reuse back to the system."""
        _C._empty_cache()

    def memory_allocated(device=None):
        """Bytes in tensors."""
        return _C._memory_stats()[0]

    def max_memory_allocated(device=None):
        """The most bytes in tensors so far."""
        return _C._memory_stats()[2]

    def memory_reserved(device=None):
        """Bytes held by the allocator."""
        return _C._memory_stats()[1]

    def max_memory_reserved(device=None):
        """Bytes held by the allocator."""
        return max(_C._memory_stats()[1:])

    def memory_stats(device=None):
        """Figures of the allocator."""
        allocated, reserved, peak = _C._memory_stats()
        return {
            "allocated_bytes.all.current": allocated, "allocated_bytes.all.peak": peak,
            "reserved_bytes.all.current": reserved, "reserved_bytes.all.peak": max(reserved, peak),
        }

    def memory_summary(device=None, abbreviated=False):
        """Figures of the allocator, in words."""
        return "\n".join(f"{name}: {value}" for name, value in memory_stats().items())

    def mem_get_info(device=None):
        """Free and total bytes of memory."""
        total = DeviceProperties().total_memory
        return max(total - memory_reserved(), 0), total

    def reset_peak_memory_stats(device=None):
        """Starts measuring a new peak."""
        _C._reset_peak_memory()

    def manual_seed(seed):
        """Seeds the default generator."""
        _C._manual_seed(seed)

    def manual_seed_all(seed):
        """Seeds the default generator."""
        _C._manual_seed(seed)

    def initial_seed():
        """The seed of the default generator."""
        return _C.initial_seed()

    def get_rng_state(device=None):
        """The state of the default generator."""
        return _C.get_rng_state()

    def set_rng_state(new_state, device=None):
        """Sets the state of the default generator."""
        _C.set_rng_state(new_state)

    def get_rng_state_all():
        """The states of the devices' generators."""
        return [_C.get_rng_state()] if kind in pretend else []

    def set_rng_state_all(new_states):
        """Sets the states of the devices' generators."""
        for state in new_states:
            _C.set_rng_state(state)

    def current_stream(device=None):
        """The queue in use."""
        return Stream()

    def default_stream(device=None):
        """The queue that is used by default."""
        return Stream()

    def set_stream(stream):
        """Makes a queue the one in use."""

    def stream(stream):
        """A context with a queue in use."""
        return _Here()

    def is_bf16_supported(including_emulation=True):
        """Whether ops take bfloat16."""
        return True

    def init():
        """Nothing is left to be done."""

    def is_initialized():
        """Whether the device has been used."""
        return kind in pretend

    def ipc_collect():
        """Nothing is shared between processes."""

    def get_arch_list():
        """Architectures that were compiled for."""
        return []

    reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats
    memory_cached, max_memory_cached = memory_reserved, max_memory_reserved
    found = {name: f for name, f in locals().items() if callable(f) and not name.startswith("_")}
    for function in found.values():
        function.__module__ = f"rushlight.{kind}"
    return found | {"Event": Event, "Stream": Stream, "device": _Here, "device_of": _Here}
