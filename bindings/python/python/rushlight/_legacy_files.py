"""Files of ``torch.save`` before PyTorch 1.6, and storages in plain pickles: pickles one after another, then the storages' bytes."""

import io
import pickle
import struct

from .storage import _CLASSES

_MAGIC = 0x1950A86A20F9469CFC6C


class _Anything(dict):
    """Stands for every class and object while a pickle is read for its storages only, so that nothing runs."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def __call__(self, *args, **kwargs):
        return _Anything()

    def __setstate__(self, state):
        pass

    def append(self, item):
        pass

    extend = add = append
    __hash__ = object.__hash__


class _Sizes(pickle.Unpickler):
    """Reads which storages a pickle has: bytes of an element, by key."""

    def __init__(self, file, **options):
        super().__init__(file, **options)
        self.found = {}

    def find_class(self, module, name):
        return 1 if name == "UntypedStorage" else _CLASSES[name].itemsize if name in _CLASSES else _Anything

    def persistent_load(self, pid):
        if pid[0] == "storage":
            self.found[pid[2]] = pid[1]
        return pid[1] if pid[0] == "module" else _Anything()


def records(data, options):
    """Where the main pickle of such a file begins, and the bytes of its storages by key. None for other files."""
    file = io.BytesIO(data)
    try:
        if _Sizes(file).load() != _MAGIC:
            return None
        for _ in range(2):
            # Version and sizes of integers.
            _Sizes(file).load()
        start = file.tell()
        sizes = _Sizes(file, **options)
        sizes.load()
        keys = _Sizes(file).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError):
        return None
    found = {}
    for key in keys:
        (count,) = struct.unpack("<q", file.read(8))
        if key not in sizes.found or count < 0:
            raise RuntimeError(f"load: storage {key} of the file is not part of its objects")
        found[key] = file.read(count * sizes.found[key])
    return start, found
