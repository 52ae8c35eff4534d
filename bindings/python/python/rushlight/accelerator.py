"""``torch.accelerator``: whatever accelerator there is."""

from . import _C, _accelerator

_functions = _accelerator.functions("accelerator")
for _name in ("synchronize", "current_stream", "set_stream", "memory_stats", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "reset_peak_memory_stats", "empty_cache"):
    globals()[_name] = _functions[_name]


def is_available():
    """Whether there is an accelerator."""
    return bool(_accelerator.pretend)


def device_count():
    """How many there are."""
    return 1 if _accelerator.pretend else 0


def current_accelerator(check_available=False):
    """The device of the accelerator, or None."""
    return _C.device(next(iter(_accelerator.pretend))) if _accelerator.pretend else None


def current_device_index():
    """The number of the device in use."""
    return 0


current_device_idx = current_device_index


def set_device_index(device):
    """Makes a device the one in use: there is one."""


set_device_idx = set_device_index


def device_index(device):
    """A context with a device in use."""
    return _accelerator._Here()
