"""``torch.accelerator``: the machine's accelerator."""

from . import _C, _accelerator

_functions = _accelerator.functions("accelerator")
for _name in (
    "is_available device_count synchronize current_stream set_stream memory_stats memory_allocated max_memory_allocated memory_reserved "
    "max_memory_reserved reset_peak_memory_stats reset_accumulated_memory_stats empty_cache get_device_capability"
).split():
    globals()[_name] = _functions[_name]


def current_accelerator(check_available=False):
    """The device of the accelerator, or None."""
    if _C._device_count():
        return _C.device("cuda")
    return _C.device(next(iter(_accelerator.pretend))) if _accelerator.pretend else None


def current_device_index():
    """The index of the current device."""
    return _C._current_device()


def set_device_index(device):
    """Sets the current device."""
    _functions["set_device"](device)


def device_index(device):
    """A context with another current device."""
    return _accelerator._Device(device)


def get_memory_info(device_index=None):
    """Bytes that are not in tensors, and total bytes, of the device's memory."""
    return _functions["mem_get_info"](device_index)


def empty_host_cache():
    """Returns cached pinned memory to the system."""
    if _C._device_count():
        _C._empty_pinned_cache()


current_device_idx, set_device_idx = current_device_index, set_device_index
