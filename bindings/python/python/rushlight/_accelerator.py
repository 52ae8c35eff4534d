"""The common part of ``torch.cuda``, ``torch.xpu``, ``torch.mps`` and ``torch.accelerator``.

``cuda``, ``xpu`` and ``hip`` name the machine's accelerator. Without one ``is_available`` is False, and other queries describe the CPU,
to which the names then refer. ``RUSHLIGHT_DEVICE`` (set by ``python -m rushlight --device``) can hide accelerators (``cpu``), or make ``is_available``
True without one (``cuda``, ``xpu``, ``hip``), for scripts that refuse to run otherwise.
"""

import os
import time

from . import _C

#: Kinds of accelerators to report as available.
pretend = {{"hip": "cuda"}.get(kind, kind) for kind in (os.environ.get("RUSHLIGHT_DEVICE"),) if kind in ("cuda", "xpu", "hip")}


def count(kind):
    """The number of devices of a kind, real or reported as available."""
    if kind == "accelerator":
        return _C._device_count() or int(bool(pretend))
    found = 0 if kind == "mps" else _C._device_count()
    return found or int(kind in pretend)


def place(kind, device=None):
    """The device that an argument of a device's function means: an accelerator, or the CPU without one."""
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
    """A point in the work of a device (``torch.Event``). The CPU's work is done when a call returns: there it is a time."""

    def __init__(self, device=None, *, enable_timing=False, blocking=False, interprocess=False):
        if interprocess:
            raise NotImplementedError("Event(interprocess=True): events are not shared between processes")
        # The driver chooses how a thread waits: `blocking` changes no result.
        self._timed = enable_timing
        self._device = None if device is None else _C.device(device)
        self._event = self._time = None

    @property
    def device(self):
        """The device that the event was recorded on, if it was."""
        return _C.device(f"{_C._accelerator_type()}:{self._event.device}") if self._event is not None else self._device

    @property
    def event_id(self):
        return 0 if self._event is None else self._event.handle

    def record(self, stream=None):
        """Records the event after all work queued on a stream, by default the current one."""
        stream = current_stream(self._device) if stream is None else stream
        if stream._stream is None:
            self._time = time.perf_counter()
            return
        if self._event is None:
            self._event = _C._Event(stream._stream.device)
        self._event.record(stream._stream)

    def wait(self, stream=None):
        """Makes later work on a stream, by default the current one, wait for the event."""
        (current_stream(self._device) if stream is None else stream).wait_event(self)

    def query(self):
        """Whether the work before the event is done."""
        return True if self._event is None else self._event.query()

    def synchronize(self):
        """Waits until the work before the event is done."""
        if self._event is not None:
            self._event.synchronize()

    def elapsed_time(self, end_event):
        """Milliseconds from this event to another."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._event is not None and end_event._event is not None:
            return self._event.elapsed_time(end_event._event)
        if self._time is None or end_event._time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1e3


class DeviceEvent(Event):
    """``torch.cuda.Event``, ``torch.xpu.Event``: a point in the work of an accelerator."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
        if external:
            raise NotImplementedError("Event(external=True): events are not part of recorded graphs")
        super().__init__(None, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)

    @property
    def cuda_event(self):
        return self.event_id

    def __repr__(self):
        return f"<torch.cuda.Event {self.event_id:#x}>" if self._event is not None else "<torch.cuda.Event uninitialized>"


class Stream:
    """A queue of work of a device (``torch.Stream``). The CPU's work is done when a call returns, so its streams do nothing.

    Streams do not wait for each other: before a tensor made on one is used on another, the other must wait.
    """

    def __init__(self, device=None, priority=0):
        index = _accelerator_index(device)
        self.priority = priority
        self._stream = None if index is None else _C._Stream(index, priority)

    @classmethod
    def _of(cls, stream):
        made = cls.__new__(cls)
        made.priority, made._stream = 0, stream
        return made

    @property
    def device(self):
        return _C.device("cpu") if self._stream is None else _C.device(_C._accelerator_type(), self._stream.device)

    @property
    def device_index(self):
        return -1 if self._stream is None else self._stream.device

    @property
    def stream_id(self):
        return 0 if self._stream is None else self._stream.handle

    cuda_stream = native_handle = sycl_queue = stream_id

    def synchronize(self):
        """Waits until all work of this stream is done."""
        if self._stream is not None:
            self._stream.synchronize()

    def query(self):
        """Whether all work of this stream is done."""
        return True if self._stream is None else self._stream.query()

    def wait_stream(self, stream):
        """Makes later work on this stream wait for all earlier work of another."""
        if self._stream is not None and stream._stream is not None:
            self._stream.wait_stream(stream._stream)

    def wait_event(self, event):
        """Makes later work on this stream wait for an event."""
        if self._stream is not None and event._event is not None:
            self._stream.wait_event(event._event)

    def record_event(self, event=None):
        """An event recorded after all work queued on this stream."""
        event = DeviceEvent() if event is None else event
        event.record(self)
        return event

    def is_capturing(self):
        """Whether work is being recorded as a graph."""
        return _C._is_recording()

    def __eq__(self, other):
        return isinstance(other, Stream) and self._stream == other._stream

    def __hash__(self):
        return hash((self.stream_id, self.device_index))

    def __repr__(self):
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.stream_id:#x}>"

    def __cuda_stream__(self):
        return 0, self.stream_id

    def __enter__(self):
        self.__dict__.setdefault("_entered", []).append(StreamContext(self))
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *exception):
        self._entered.pop().__exit__(*exception)


def _accelerator_index(device):
    """The index of the accelerator that a device refers to; None for the CPU."""
    kind = None if device is None or isinstance(device, int) else _C.device(device).type
    return _index(device) if _C._device_count() and kind != "cpu" else None


def current_stream(device=None):
    """The stream that this thread's work on a device goes to."""
    index = _accelerator_index(device)
    return Stream._of(None if index is None else _C._Stream.current(index))


def default_stream(device=None):
    """The default stream of a device."""
    index = _accelerator_index(device)
    return Stream._of(None if index is None else _C._Stream.main(index))


def set_stream(stream):
    """Sends this thread's work on a stream's device to the stream from now on."""
    if stream is not None and stream._stream is not None:
        _C._set_device(stream._stream.device)
        stream._stream.set_current()


class StreamContext:
    """A context whose work goes to a stream; to the current one if it is None."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        self._former = None
        if self.stream is not None and self.stream._stream is not None:
            index = self.stream._stream.device
            self._former = _C._current_device(), _C._Stream.current(index)
            set_stream(self.stream)
        return self.stream

    def __exit__(self, *exception):
        if self._former is not None:
            device, stream = self._former
            stream.set_current()
            _C._set_device(device)


class DeviceProperties:
    """Properties of a device."""

    def __init__(self, kind, device=None):
        self._kind = kind
        if kind != "cpu" and _C._device_count():
            found = _C._device_properties(_index(device))
            self.name, self.total_memory, self.multi_processor_count, (self.major, self.minor), self.driver, self.runtime = found
            self.is_integrated = False
        else:
            self.name, self.multi_processor_count, self.major, self.minor = cpu_name(), os.cpu_count(), 0, 0
            self.total_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
            self.is_integrated, self.driver, self.runtime = True, "", ""
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


def _notice(kind, index=0):
    """Warns once if an accelerator's name refers to the CPU; raises for the index of a missing device."""
    if not pretend and not _C._device_count() and index >= 0:
        kind = kind if kind in ("cuda", "xpu") else "cuda"
        where = _C.device(f"{kind}:{index}" if index else kind)
        where.__enter__()
        where.__exit__()


class _Device:
    """A context with another current device."""

    def __init__(self, device=None):
        self.idx = None if device is None or isinstance(device, _C.Tensor) and device.is_cpu else _index(getattr(device, "device", device))

    def __enter__(self):
        self._before = _C._current_device()
        if self.idx is not None and self.idx >= 0:
            _notice("cuda", self.idx)
            if _C._device_count():
                _C._set_device(self.idx)
        return self

    def __exit__(self, *exception):
        if _C._device_count():
            _C._set_device(self._before)


def functions(kind):
    """The functions of a device's package."""

    def is_available():
        """Whether there is such a device."""
        return count(kind) > 0

    def device_count():
        """Number of such devices."""
        return count(kind)

    def current_device():
        """The index of the current device."""
        _notice(kind)
        return _C._current_device()

    def get_device_name(device=None):
        """The device's name."""
        return get_device_properties(device).name

    def get_device_properties(device=None):
        """Properties of the device."""
        _notice(kind)
        return DeviceProperties(kind, device)

    def get_device_capability(device=None):
        """The device's version, as two numbers."""
        found = get_device_properties(device)
        return found.major, found.minor

    def set_device(device):
        """Sets the current device."""
        if not isinstance(device, int):
            device = _C.device(device)
            if device.type == "cpu" and kind != "cpu":
                raise ValueError(f"Expected a {kind} device, but got: {device}")
            if device.index is None and kind == "cuda":
                raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
        index = _index(device)
        _notice(kind, index)
        if _C._device_count() and index >= 0:
            _C._set_device(index)

    def synchronize(device=None):
        """Waits for all work of the device."""
        _C._synchronize(place(kind, device))

    def empty_cache():
        """Returns cached memory to the system."""
        _C._empty_cache(place(kind))

    def memory_allocated(device=None):
        """Bytes in tensors."""
        return _C._memory_stats(place(kind, device))[0]

    def max_memory_allocated(device=None):
        """Peak bytes in tensors."""
        return _C._memory_stats(place(kind, device))[2]

    def memory_reserved(device=None):
        """Bytes held by the allocator."""
        return _C._memory_stats(place(kind, device))[1]

    def max_memory_reserved(device=None):
        """Peak bytes held by the allocator, a lower bound: the larger of its current bytes and the peak bytes of tensors."""
        return max(_C._memory_stats(place(kind, device))[1:])

    def memory_stats(device=None):
        """Figures of the allocator."""
        allocated, reserved, peak = _C._memory_stats(place(kind, device))
        return {
            "allocated_bytes.all.current": allocated, "allocated_bytes.all.peak": peak,
            "reserved_bytes.all.current": reserved, "reserved_bytes.all.peak": max(reserved, peak),
        }

    def memory_summary(device=None, abbreviated=False):
        """Figures of the allocator as text."""
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
        _C._manual_seed(int(seed))

    def manual_seed_all(seed):
        """Seeds the default generator."""
        _C._manual_seed(int(seed))

    def seed():
        """Seeds the default generator from the system's entropy."""
        _C.seed()

    def seed_all():
        """Seeds the default generator from the system's entropy."""
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

    def is_bf16_supported(including_emulation=True):
        """Whether ops support bfloat16."""
        return True

    def init():
        """Does nothing: there is nothing to initialise."""

    def is_initialized():
        """Whether the device has been used."""
        return is_available()

    def ipc_collect():
        """Does nothing: no memory is shared between processes."""

    def get_arch_list():
        """Compiled architectures: the device's own, as kernels are compiled on first use."""
        return []

    def is_current_stream_capturing():
        """Whether this thread's work is being recorded as a graph."""
        return _C._is_recording()

    def can_device_access_peer(device, peer_device):
        """Whether a device can read another's memory: always False, as copies go through the host."""
        return False

    reset_max_memory_allocated = reset_max_memory_cached = reset_accumulated_memory_stats = reset_peak_memory_stats
    memory_cached, max_memory_cached = memory_reserved, max_memory_reserved
    found = {name: f for name, f in locals().items() if callable(f) and not name.startswith("_")}
    for function in found.values():
        function.__module__, function.__qualname__ = f"rushlight.{kind}", function.__name__
    return found | {
        "Event": DeviceEvent, "Stream": Stream, "StreamContext": StreamContext, "stream": StreamContext, "device": _Device, "device_of": _Device,
        "current_stream": current_stream, "default_stream": default_stream, "set_stream": set_stream,
    }
