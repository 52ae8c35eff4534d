"""Functions that pickles name to rebuild tensors and parameters, exceptions of other processes, groups of tensors."""

import pickle
import sys
import traceback

from . import _C


class KeyErrorMessage(str):
    """A message whose line breaks are kept where KeyError would quote them."""

    def __repr__(self):
        return str(self)


class ExceptionWrapper:
    """An exception of another process or thread, to be raised here."""

    def __init__(self, exc_info=None, where="in background"):
        kind = (exc_info or sys.exc_info())[0]
        self.exc_msg = "".join(traceback.format_exception(*(exc_info or sys.exc_info())))
        self.exc_type, self.where = kind, where
        try:
            pickle.loads(pickle.dumps(kind))
        except Exception:
            # A class that exists only in the worker.
            self.exc_type = RuntimeError
        if issubclass(kind, StopIteration):
            # Raised in the main process, it would end the loop as if all were well.
            self.exc_type = RuntimeError

    def reraise(self):
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            raise KeyError(KeyErrorMessage(message))
        if getattr(self.exc_type, "message", None):
            raise self.exc_type(message=message)
        try:
            error = self.exc_type(message)
        except Exception:
            raise RuntimeError(message) from None
        raise error


def _flatten_dense_tensors(tensors):
    """The elements of tensors of one dtype, as one vector."""
    return _C._torch.cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat, tensors):
    """Views of a vector with the sizes of tensors, one after another."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors))


def _flatten_sparse_tensors(tensors):
    """The indices and the values of sparse tensors, as one vector each."""
    return _flatten_dense_tensors([t._indices() for t in tensors]), _flatten_dense_tensors([t._values() for t in tensors])


def _unflatten_sparse_tensors(flat, tensors):
    """Sparse tensors with the sizes of others, of a vector of indices and one of values."""
    indices = _unflatten_dense_tensors(flat[0], [t._indices() for t in tensors])
    values = _unflatten_dense_tensors(flat[1], [t._values() for t in tensors])
    from . import sparse

    return tuple(sparse.sparse_coo_tensor(i, v, t.shape) for t, i, v in zip(tensors, indices, values))


def _maybe_view_chunk_cat(res, group_size, gather_dim):
    """``cat(chunk(res, group_size), gather_dim)``; a view where the chunks lie in order."""
    if gather_dim == 0:
        return res
    parts = res.unflatten(0, (group_size, -1)).movedim(0, gather_dim)
    return parts.flatten(gather_dim, gather_dim + 1)


def _element_size(dtype):
    """Bytes of an element."""
    return dtype.itemsize


def _is_privateuse1_backend_available():
    """Whether someone has added a device of their own: never."""
    return False


def _take_tensors(tensors, size_limit):
    """Groups tensors of one type into lists of at most ``size_limit`` bytes; one that is larger is a list of its own."""
    open_lists = {}
    for tensor in tensors:
        kind, size = tensor.type(), tensor.numel() * tensor.element_size()
        kept, total = open_lists.get(kind, ([], 0))
        if total + size > size_limit and total > 0:
            yield kept
            kept, total = [], 0
        open_lists[kind] = ([*kept, tensor], total + size)
    for kept, total in open_lists.values():
        if kept:
            yield kept


def _reorder_tensors_as(tensors, ordered_tensors):
    """Tensors in the order of the types of other tensors."""
    by_type = {}
    for tensor in tensors:
        by_type.setdefault(tensor.type(), []).append(tensor)
    iterators = {kind: iter(kept) for kind, kept in by_type.items()}
    return tuple(next(iterators[tensor.type()]) for tensor in ordered_tensors)


def _get_device_index(device, optional=False, allow_cpu=False):
    """The index of a device given as a number, a string or a device."""
    if isinstance(device, str):
        device = _C.device(device)
    if isinstance(device, _C.device):
        if not allow_cpu and device.type == "cpu":
            raise ValueError(f"Expected a non cpu device, but got: {device}")
        index = -1 if device.type == "cpu" else device.index
    else:
        index = device
    if index is None:
        if not optional:
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
        index = _C._current_device()
    return index


def _get_available_device_type():
    """The kind of the machine's accelerator, or None."""
    from . import cuda, xpu

    return "cuda" if cuda.is_available() else "xpu" if xpu.is_available() else None


def _get_device_module(device_type):
    """The module of a type of device: ``torch.cuda``."""
    import sys

    module = getattr(sys.modules[__package__], device_type, None)
    if module is None:
        raise RuntimeError(f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'.")
    return module


def _rebuild_tensor(storage, storage_offset, size, stride):
    return _C._over_storage(storage._bytes, storage.dtype, storage_offset, list(size), list(stride))


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None):
    return _rebuild_tensor(storage, storage_offset, size, stride).requires_grad_(requires_grad)


def _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad):
    from ._strided import empty_strided

    return empty_strided(size, stride, dtype=dtype, device="meta", requires_grad=requires_grad)


def _rebuild_sparse_tensor(layout, data):
    from . import sparse

    if layout == _C.sparse_coo:
        indices, values, size, *coalesced = data
        return sparse.sparse_coo_tensor(indices, values, size, is_coalesced=bool(coalesced and coalesced[0]))
    return sparse.sparse_compressed_tensor(*data, layout=layout)


def _rebuild_parameter(data, requires_grad, backward_hooks):
    from .nn.parameter import Parameter

    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    parameter = _rebuild_parameter(data, requires_grad, backward_hooks)
    attributes = state[0] if isinstance(state, tuple) else state
    parameter.__dict__.update(attributes or {})
    return parameter


def cpu_count():
    """Processors that this process may use."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _get_all_device_indices():
    """The numbers of all accelerators; None without one."""
    from . import cuda

    return list(range(cuda.device_count())) if _get_available_device_type() else None


def _import_dotted_name(name):
    """What a name with dots means, its module imported before."""
    parts = name.split(".")
    found = __import__(parts[0])
    for part in parts[1:]:
        found = getattr(found, part)
    return found


class classproperty:
    """A property of a class."""

    def __init__(self, func):
        self.func = func

    def __get__(self, instance, owner):
        return self.func(owner)
