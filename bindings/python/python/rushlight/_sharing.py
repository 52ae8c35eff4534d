"""Memory shared between processes: the target of ``Tensor.share_memory_``.

A region is an anonymous file that is mapped. Forked processes inherit the mapping. Spawned ones, and those at the other end of a queue, get the
file's descriptor from ``multiprocessing``, whose pickler calls ``reduce`` for tensors; ordinary pickles hold the elements, as ever.
"""

import mmap
import os
import tempfile
import weakref
from multiprocessing.reduction import DupFd, ForkingPickler

from . import _C

Tensor = _C.Tensor

#: Regions by address, while a tensor uses them.
_regions = weakref.WeakValueDictionary()


class Region(mmap.mmap):
    """Mapped memory that knows its file."""

    def __new__(cls, descriptor, size):
        self = super().__new__(cls, descriptor, size)
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        return self


def _anonymous_file(size):
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rushlight")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _mapped(descriptor, size):
    """The bytes of a region as a tensor, which keeps it."""
    region = Region(descriptor, size)
    made = _C.frombuffer(region, dtype=_C.uint8)
    _regions[made.data_ptr()] = region
    return made


def region_of(tensor):
    """The region of a tensor, or None."""
    return _regions.get(tensor.untyped_storage().data_ptr())


def move(tensor):
    """Moves a tensor's elements to a shared region, unless they are in one already."""
    if tensor.nbytes and region_of(tensor) is None:
        shared = _mapped(_anonymous_file(tensor.nbytes), tensor.nbytes).view(tensor.dtype).reshape(tensor.shape)
        tensor.data = shared.copy_(tensor.detach())


def reduce(tensor):
    """A tensor's form in ``multiprocessing``'s pickles."""
    region = region_of(tensor) if tensor.device.type == "cpu" else None
    if region is None or not tensor.is_leaf:
        return tensor.__reduce_ex__(2)
    place = (tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    return _rebuild, (type(tensor), DupFd(region.descriptor), len(region), place, tensor.requires_grad)


def _rebuild(cls, file, size, place, requires_grad):
    dtype, shape, stride, offset = place
    made = _mapped(file.detach(), size).view(dtype).as_strided(shape, stride, offset)
    return made.requires_grad_(requires_grad) if cls is Tensor else cls._make_subclass(made, requires_grad)


def _register():
    from .nn import Parameter

    for cls in (Tensor, Parameter):
        ForkingPickler.register(cls, reduce)


_register()
