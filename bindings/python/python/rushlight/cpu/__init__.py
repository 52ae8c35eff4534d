"""``torch.cpu``: the CPU as a device."""

from .. import _accelerator
from . import amp  # noqa: F401

_functions = _accelerator.functions("cpu")
for _name in ("synchronize", "set_device", "memory_stats", "max_memory_allocated", "memory_allocated", "reset_peak_memory_stats", "empty_cache"):
    globals()[_name] = _functions[_name]


class Stream(_accelerator.Stream):
    """A queue of work of the CPU, which is done when a call returns."""

    def __init__(self, priority=-1):
        super().__init__("cpu", priority)


class Event(_accelerator.Event):
    """A point in the work of the CPU."""

    def __init__(self, enable_timing=False):
        super().__init__("cpu", enable_timing=enable_timing)


StreamContext = _accelerator.StreamContext


def current_stream(device=None):
    """The queue of the CPU's work."""
    return Stream()


def stream(stream):
    """A context whose work goes to a stream."""
    return _accelerator.StreamContext(stream)


def is_available():
    """Whether there is a CPU."""
    return True


def is_initialized():
    """Whether it is initialised: always True."""
    return True


def device_count():
    """Number of CPU devices: one."""
    return 1


def current_device():
    """The current device."""
    return "cpu"


def _flags():
    """Names of the instruction sets of the first core."""
    try:
        with open("/proc/cpuinfo") as file:
            return frozenset(next((line for line in file if line.startswith(("flags", "Features"))), "").split())
    except OSError:
        return frozenset()


def get_capabilities():
    """What the CPU has: its architecture, and whether it has each of its instruction sets."""
    import platform

    found, machine = _flags(), platform.machine()
    names = "sse4_1 sse4_2 avx avx2 fma avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 amx_bf16 amx_int8" if machine == "x86_64" else "asimd sve bf16 i8mm"
    return {"architecture": machine, **{name: name in found for name in names.split()}}


def _is_avx2_supported():
    return "avx2" in _flags()


def _is_avx512_supported():
    return "avx512f" in _flags()


def _is_avx512_bf16_supported():
    return "avx512_bf16" in _flags()


def _is_vnni_supported():
    return "avx512_vnni" in _flags()


def _is_amx_tile_supported():
    return "amx_tile" in _flags()
