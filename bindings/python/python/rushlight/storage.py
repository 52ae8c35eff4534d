"""Storages: the memory of tensors."""

import copy

from . import _C

_CLASSES = {
    "FloatStorage": _C.float32, "DoubleStorage": _C.float64, "HalfStorage": _C.float16, "BFloat16Storage": _C.bfloat16,
    "LongStorage": _C.int64, "IntStorage": _C.int32, "ShortStorage": _C.int16, "CharStorage": _C.int8, "ByteStorage": _C.uint8,
    "BoolStorage": _C.bool, "ComplexFloatStorage": _C.complex64, "ComplexDoubleStorage": _C.complex128,
}


class UntypedStorage:
    """The bytes of tensors."""

    is_sparse = False

    def __init__(self, size=0, *, device=None):
        """A number of zero bytes, or the bytes of a list."""
        if isinstance(size, int):
            self._bytes = _C._torch.zeros(size, dtype=_C.uint8, device=device)
        else:
            self._bytes = _C.tensor(list(size), dtype=_C.uint8, device=device)

    @classmethod
    def _of(cls, tensor):
        """The memory of a tensor."""
        return cls._over(_C._torch.empty(tensor.nbytes, dtype=_C.uint8, device="meta") if tensor.is_meta else _C._storage(tensor))

    @classmethod
    def _over(cls, data):
        made = cls.__new__(cls)
        made._bytes = data
        return made

    @classmethod
    def from_file(cls, filename, shared=False, nbytes=0):
        """A file's bytes, mapped into memory. Changes are written to the file if it is ``shared``; otherwise they are private to this process."""
        import mmap
        import os

        if shared and nbytes and (not os.path.exists(filename) or os.path.getsize(filename) < nbytes):
            with open(filename, "ab") as file:
                file.truncate(nbytes)
        with open(filename, "r+b" if shared else "rb") as file:
            size = nbytes or os.fstat(file.fileno()).st_size
            if size > os.fstat(file.fileno()).st_size:
                raise RuntimeError(f"from_file: {filename} has {os.fstat(file.fileno()).st_size} bytes, fewer than {size}")
            if size == 0:
                return cls(0)
            mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
        made = cls._over(_C.frombuffer(mapped, dtype=_C.uint8))
        made._filename = os.fspath(filename)
        return made

    _filename = None

    @property
    def filename(self):
        return self._filename

    def __sizeof__(self):
        return object.__sizeof__(self) + self.nbytes()

    def nbytes(self):
        return self._bytes.numel()

    size = __len__ = nbytes

    def element_size(self):
        return 1

    def data_ptr(self):
        return self._bytes.data_ptr()

    @property
    def _cdata(self):
        """An identifier of the storage."""
        return self.data_ptr()

    @property
    def device(self):
        return self._bytes.device

    is_cuda = property(lambda self: self._bytes.is_cuda)

    def untyped(self):
        return self

    def _check_elements(self):
        if self._bytes.is_meta:
            raise NotImplementedError("Not available for 'meta' device type")

    def tolist(self):
        self._check_elements()
        return self._bytes.tolist()

    def __iter__(self):
        return iter(self.tolist())

    def __getitem__(self, index):
        self._check_elements()
        return UntypedStorage._over(self._bytes[index]) if isinstance(index, slice) else self._bytes[index].item()

    def __setitem__(self, index, value):
        self._bytes[index] = value

    def fill_(self, value):
        self._bytes.fill_(value)
        return self

    def copy_(self, source, non_blocking=False):
        self._bytes.copy_(source._bytes, non_blocking)
        return self

    def clone(self):
        return type(self)._over(self._bytes.clone())

    def __copy__(self):
        return self.clone()

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            # Tensors over the same memory share the copy, too.
            memo[id(self)] = type(self)._over(copy.deepcopy(self._bytes, memo))
        return memo[id(self)]

    def resize_(self, size):
        """Resizes the storage. Tensors that use it keep their old memory."""
        kept = min(size, len(self._bytes))
        grown = _C._torch.zeros(size, dtype=_C.uint8, device=self._bytes.device)
        grown[:kept].copy_(self._bytes[:kept])
        self._bytes = grown
        return self

    def to(self, *, device, non_blocking=False):
        return type(self)._over(self._bytes.to(device, non_blocking=non_blocking))

    def cpu(self):
        return self.to(device="cpu")

    def cuda(self, device=None, non_blocking=False):
        return self.to(device="cuda" if device is None else device, non_blocking=non_blocking)

    def share_memory_(self):
        """Moves the bytes to memory shared with processes forked from now on."""
        self._check_on_cpu("share_memory_")
        self._bytes.share_memory_()
        return self

    def _check_on_cpu(self, name):
        if self.device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"{name}: only available on CPU")

    def is_shared(self):
        return self._bytes.is_shared()

    def pin_memory(self, device=None):
        return type(self)._over(self._bytes.pin_memory())

    def is_pinned(self, device=None):
        return self._bytes.is_pinned()

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and self.data_ptr() == other.data_ptr() and self.nbytes() == other.nbytes()

    def __hash__(self):
        return hash(self.data_ptr())

    def __repr__(self):
        return f"[torch.storage.{type(self).__name__}(device={self.device}) of size {len(self)}]"


class TypedStorage(UntypedStorage):
    """The elements of tensors."""

    dtype = None

    def __new__(cls, *args, wrap_storage=None, dtype=None, device=None, _internal=False):
        if cls is TypedStorage:
            if dtype is None:
                raise RuntimeError("TypedStorage: give dtype, or use torch.UntypedStorage")
            cls = globals()[next(name for name, known in _CLASSES.items() if known == dtype)]
        made = object.__new__(cls)
        if wrap_storage is not None:
            made._bytes = wrap_storage._bytes
        return made

    def __init__(self, *args, wrap_storage=None, dtype=None, device=None, _internal=False):
        if wrap_storage is not None:
            return
        size = args[0] if args else 0
        if isinstance(size, int):
            super().__init__(size * self.dtype.itemsize, device=device)
        else:
            self._bytes = _C._storage(_C.tensor(list(size), dtype=self.dtype, device=device))

    @classmethod
    def _of(cls, tensor):
        for name, dtype in _CLASSES.items():
            if dtype == tensor.dtype:
                return super(TypedStorage, globals()[name])._of(tensor)
        # Dtypes that have no class of their own.
        made = object.__new__(TypedStorage)
        made._bytes, made.dtype = UntypedStorage._of(tensor)._bytes, tensor.dtype
        return made

    def _elements(self):
        return _C._over_storage(self._bytes, self.dtype, 0, [len(self)], [1])

    def __len__(self):
        return self.nbytes() // self.dtype.itemsize

    size = __len__

    def element_size(self):
        return self.dtype.itemsize

    def tolist(self):
        self._check_elements()
        return self._elements().tolist()

    def fill_(self, value):
        self._elements().fill_(value)
        return self

    def __getitem__(self, index):
        self._check_elements()
        return self._elements()[index].item()

    def __setitem__(self, index, value):
        self._elements()[index] = value

    def untyped(self):
        return UntypedStorage._over(self._bytes)

    _untyped_storage = property(untyped)

    def type(self, dtype=None, non_blocking=False):
        """The name of the class; with a dtype or a name, the elements converted."""
        if dtype is None:
            return f"torch.{type(self).__name__}"
        if isinstance(dtype, str):
            dtype = _CLASSES[dtype.rpartition(".")[2]]
        return self._cast(dtype)

    def _cast(self, dtype):
        return self if dtype == self.dtype else TypedStorage._of(self._elements().to(dtype))


def _casting(dtype):
    def cast(self):
        return self._cast(dtype)

    cast.__doc__ = f"The elements as {dtype}."
    return cast


for _name, _dtype in {
    "double": _C.float64, "float": _C.float32, "half": _C.float16, "bfloat16": _C.bfloat16, "long": _C.int64, "int": _C.int32, "short": _C.int16,
    "char": _C.int8, "byte": _C.uint8, "bool": _C.bool, "complex_double": _C.complex128, "complex_float": _C.complex64,
}.items():
    setattr(TypedStorage, _name, _casting(_dtype))

for _name, _dtype in _CLASSES.items():
    globals()[_name] = type(_name, (TypedStorage,), {"dtype": _dtype, "__module__": __name__, "__doc__": f"Elements of dtype {_dtype}."})


def _dtype_to_storage_type_map():
    """Names of the classes of storages, by dtype."""
    return {dtype: name for name, dtype in _CLASSES.items()}


def _storage_type_to_dtype_map():
    """Dtypes, by the names of the classes of storages."""
    return dict(_CLASSES)


#: The class of storages of the default dtype.
Storage = FloatStorage  # noqa: F821


def _load_from_bytes(data):
    """A storage in a pickle of PyTorch's, which has the bytes of a file of ``torch.save``."""
    import io

    from .serialization import load

    return load(io.BytesIO(data), weights_only=False)
