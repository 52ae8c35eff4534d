"""Which tensors the functions over lists take, and how to group them."""

from .. import _C

Tensor = _C.Tensor
_foreach_supported_types = [Tensor]


def _get_foreach_kernels_supported_devices():
    """Types of devices with functions over lists."""
    return ["cuda", "xpu"]


def _get_fused_kernels_supported_devices():
    """Types of devices with fused optimizers: all."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia"]


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
    """Lists of tensors, grouped by the device and dtype of the first list's tensors. The groups keep the order of the lists."""
    groups = {}
    for at, first in enumerate(tensorlistlist[0]):
        lists, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for kept, tensors in zip(lists, tensorlistlist):
            if tensors:
                kept.append(tensors[at])
        indices.append(at)
    return {key: (lists, indices if with_indices else []) for key, (lists, indices) in groups.items()}


def _device_has_foreach_support(device):
    """Whether functions over lists take tensors of a device."""
    return device.type in (*_get_foreach_kernels_supported_devices(), "cpu")


def _has_foreach_support(tensors, device):
    """Whether functions over lists take these tensors."""
    return _device_has_foreach_support(device) and all(t is None or type(t) in _foreach_supported_types for t in tensors)
