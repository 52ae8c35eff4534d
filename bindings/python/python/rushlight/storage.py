"""Storages: the memory that tensors look into."""

from . import _C

_CLASSES = {
    "FloatStorage": _C.float32, "DoubleStorage": _C.float64, "HalfStorage": _C.float16, "BFloat16Storage": _C.bfloat16,
    "LongStorage": _C.int64, "IntStorage": _C.int32, "ShortStorage": _C.int16, "CharStorage": _C.int8, "ByteStorage": _C.uint8,
    "BoolStorage": _C.bool,
}


class UntypedStorage:
    """The bytes behind tensors."""

    def __init__(self, size=0):
        self._bytes = _C._torch.zeros(size, dtype=_C.uint8)

    @classmethod
    def _of(cls, tensor):
        made = cls.__new__(cls)
        made._bytes = _C._storage(tensor)
        return made

    def nbytes(self):
        return self._bytes.numel()

    size = __len__ = nbytes

    def data_ptr(self):
        return self._bytes.data_ptr()

    def tolist(self):
        return self._bytes.tolist()

    def __getitem__(self, index):
        return self._bytes[index].item()

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and self.data_ptr() == other.data_ptr() and len(self) == len(other)

    def __hash__(self):
        return hash(self.data_ptr())

    @property
    def device(self):
        return self._bytes.device


class TypedStorage(UntypedStorage):
    """The elements behind tensors."""

    dtype = None

    @classmethod
    def _of(cls, tensor):
        for name, dtype in _CLASSES.items():
            if dtype == tensor.dtype:
                return super(TypedStorage, globals()[name])._of(tensor)

    def _elements(self):
        return _C._over_storage(self._bytes, self.dtype, 0, [len(self)], [1])

    def __len__(self):
        return self.nbytes() // self.dtype.itemsize

    size = __len__

    def tolist(self):
        return self._elements().tolist()

    def __getitem__(self, index):
        return self._elements()[index].item()

    def untyped(self):
        return UntypedStorage._of(self._bytes)


for _name, _dtype in _CLASSES.items():
    globals()[_name] = type(_name, (TypedStorage,), {"dtype": _dtype, "__module__": __name__, "__doc__": f"Elements of dtype {_dtype}."})
