"""Batches in pinned memory."""

from .... import _C


def pin_memory(data, device=None):
    """The same data with its tensors in pinned memory; objects with a method ``pin_memory`` pin themselves."""
    if isinstance(data, _C.Tensor):
        return data.pin_memory() if data.is_cpu else data
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, dict):
        pinned = {key: pin_memory(value) for key, value in data.items()}
        return pinned if type(data) is dict else type(data)(pinned)
    if isinstance(data, tuple):
        pinned = [pin_memory(value) for value in data]
        return type(data)(*pinned) if hasattr(data, "_fields") else type(data)(pinned)
    if isinstance(data, list):
        return type(data)(pin_memory(value) for value in data)
    return data


def wanted(loader):
    """Whether a loader's batches are pinned; warns if they cannot be."""
    if not loader.pin_memory:
        return False
    if _C._device_count():
        return True
    from .... import _accelerator

    if not _accelerator.pretend:
        import warnings

        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.", stacklevel=4
        )
    return False
