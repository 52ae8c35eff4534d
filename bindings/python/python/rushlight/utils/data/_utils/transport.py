"""Transfer of batches between processes: tensors in shared memory, the rest pickled."""

import io
import mmap
import os
import pickle
import tempfile

from .... import _C

# Smaller batches go through the pipe: a file costs more.
_SMALL = 32 * 1024
_ALIGNMENT = 64


def directory():
    """Directory of shared memory."""
    return "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


class _Pickler(pickle.Pickler):
    def __init__(self, file):
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors, self.number = [], {}

    def persistent_id(self, obj):
        if type(obj) is not _C.Tensor:
            return None
        if id(obj) not in self.number:
            self.number[id(obj)] = len(self.tensors)
            self.tensors.append(obj)
        return self.number[id(obj)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, tensors):
        super().__init__(file)
        self.tensors = tensors

    def persistent_load(self, number):
        return self.tensors[number]


def pack(data, name):
    """A message for ``unpack``. ``name`` is a path for a file of shared memory, which the receiver removes."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(data)
    layout, size = [], 0
    for tensor in pickler.tensors:
        if tensor.requires_grad and not tensor.is_leaf:
            raise RuntimeError("a non-leaf tensor that requires grad cannot go to another process, where its graph would be missing; return "
                               "tensor.detach() from the dataset or the collate_fn")
        layout.append((tensor.dtype, tuple(tensor.shape), size, tensor.requires_grad))
        size += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    if size <= _SMALL:
        return file.getvalue(), layout, [_C._to_bytes(t) for t in pickler.tensors], None, 0
    memory = _map(name, size, create=True)
    for tensor, (dtype, shape, offset, _) in zip(pickler.tensors, layout):
        if tensor.numel():
            _C.frombuffer(memory, dtype=dtype, count=tensor.numel(), offset=offset).reshape(shape).copy_(tensor.detach())
    return file.getvalue(), layout, None, name, size


def unpack(message):
    """The packed object. Tensors are views of the shared memory, which lives as long as they do."""
    pickled, layout, small, name, size = message
    if name is None:
        tensors = [_C._from_bytes(data, dtype, shape) for data, (dtype, shape, _, _) in zip(small, layout)]
    else:
        memory = _map(name, size, create=False)
        os.unlink(name)
        tensors = [_view(memory, *entry[:3]) for entry in layout]
    tensors = [t.requires_grad_() if entry[3] else t for t, entry in zip(tensors, layout)]
    return _Unpickler(io.BytesIO(pickled), tensors).load()


def discard(message):
    """Frees an unused message."""
    if message[3] is not None:
        try:
            os.unlink(message[3])
        except FileNotFoundError:
            pass


def _view(memory, dtype, shape, offset):
    count = 1
    for n in shape:
        count *= n
    if count == 0:
        return _C._torch.empty(shape, dtype=dtype)
    return _C.frombuffer(memory, dtype=dtype, count=count, offset=offset).reshape(shape)


def _truncate(fd, start, size):
    os.ftruncate(fd, start + size)


def _map(name, size, create):
    fd = os.open(name, os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
    try:
        if create:
            try:
                # Reserves space now: running out of it later would kill the process by a signal.
                (os.posix_fallocate if hasattr(os, "posix_fallocate") else _truncate)(fd, 0, size)
            except OSError as error:
                os.unlink(name)
                raise RuntimeError(
                    f"DataLoader worker: no room for a batch of {size} bytes in {directory()} ({error.strerror}); use fewer workers, a smaller "
                    "batch or prefetch_factor, or give the container more shared memory"
                ) from None
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)
