"""``torch.cpu``: the device that is always there."""

from . import _accelerator
from ._accelerator import Event, Stream  # noqa: F401

_functions = _accelerator.functions("cpu")
for _name in ("synchronize", "current_stream", "stream", "set_device", "memory_stats", "max_memory_allocated", "memory_allocated", "reset_peak_memory_stats", "empty_cache"):
    globals()[_name] = _functions[_name]


def is_available():
    """Whether there is a CPU."""
    return True


def is_initialized():
    """Whether it has been used."""
    return True


def device_count():
    """How many CPUs tensors can be on: one."""
    return 1


def current_device():
    """The device in use."""
    return "cpu"


class amp:
    """The older place of mixed precision."""

    @staticmethod
    def autocast(enabled=True, dtype=None, cache_enabled=True):
        from .amp import autocast

        return autocast("cpu", dtype, enabled, cache_enabled)

    @staticmethod
    def GradScaler(*args, **kwargs):
        from .amp import GradScaler

        return GradScaler("cpu", *args, **kwargs)
