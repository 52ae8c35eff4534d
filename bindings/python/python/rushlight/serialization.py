"""``torch.save`` and ``torch.load``.

Tensors and plain values in dictionaries, lists and tuples are written and read in Rust, where nothing a file says can run code. Other objects
(whole models, arguments of a program) are pickled, under the names that PyTorch's classes have; reading those needs ``weights_only=False``, or that
their classes were named by ``add_safe_globals``.
"""

import io
import os
import pickle
import pickletools
import shutil
import types
import typing
import zipfile
from collections import OrderedDict

from . import _C
from ._tensor import _rebuild_from_type_v2
from ._utils import _rebuild_meta_tensor_no_storage, _rebuild_parameter, _rebuild_parameter_with_state, _rebuild_tensor_v2
from .storage import _CLASSES, TypedStorage

Tensor = _C.Tensor

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]


class _Storages:
    """The part of a pickler that writes tensors in PyTorch's format: rebuilt from storages outside the pickle."""

    def __init__(self, file, protocol):
        super().__init__(file, protocol)
        self.storages = {}

    def persistent_id(self, obj):
        if not isinstance(obj, TypedStorage):
            return None
        key = self.storages.setdefault(obj.data_ptr(), (str(len(self.storages)), obj))[0]
        return ("storage", type(obj), key, str(obj._bytes.device), len(obj))

    def reducer_override(self, obj):
        if not isinstance(obj, Tensor):
            inner = getattr(super(), "reducer_override", None)
            return NotImplemented if inner is None else inner(obj)
        attributes = vars(obj)
        if obj.is_meta and (type(obj) is Tensor or type(obj).__name__ != "Parameter"):
            return _rebuild_meta_tensor_no_storage, (obj.dtype, tuple(obj.shape), obj.stride(), obj.requires_grad)
        if type(obj) is not Tensor and type(obj).__name__ == "Parameter":
            parts = obj.detach(), obj.requires_grad, OrderedDict()
            return (_rebuild_parameter_with_state, (*parts, dict(attributes))) if attributes else (_rebuild_parameter, parts)
        parts = obj.storage(), obj.storage_offset(), tuple(obj.shape), obj.stride(), obj.requires_grad, OrderedDict()
        if attributes:
            return _rebuild_from_type_v2, (_rebuild_tensor_v2, Tensor, parts, dict(attributes))
        return _rebuild_tensor_v2, parts


class _Pickler(_Storages, pickle._Pickler):
    """Python's own pickler. Our names are written as PyTorch's."""

    def save_global(self, obj, name=None):
        name = name or getattr(obj, "__qualname__", obj.__name__)
        module = _theirs(pickle.whichmodule(obj, name))
        if module != "torch" and not module.startswith("torch."):
            return super().save_global(obj, name)
        module = "torch" if module == "torch.storage" else module
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    dispatch = dict(pickle._Pickler.dispatch)
    dispatch[type(save_global)] = save_global
    dispatch[type(len)] = save_global
    dispatch[type] = lambda self, obj: (
        pickle._Pickler.save_type(self, obj) if obj in (type(None), type(NotImplemented), type(...)) else self.save_global(obj)
    )


class _Names:
    """The part of an unpickler that maps PyTorch's names to ours."""

    def __init__(self, file, records, place, **kwargs):
        super().__init__(file, **kwargs)
        self._records, self._place, self._storages = records, place, {}

    def find_class(self, module, name):
        if name == "_rebuild_tensor_v2" and module == "torch._utils":
            return lambda storage, *parts: self._place(_rebuild_tensor_v2(storage, *parts), storage._location)
        if module == "torch" or module.startswith("torch."):
            module = "rushlight" + module[len("torch"):]
            if module in ("rushlight", "rushlight.cuda") and name in _CLASSES:
                module = "rushlight.storage"
        return super().find_class(module, name)

    def persistent_load(self, pid):
        if pid[0] == "module":
            # Old files keep the source of a class beside it.
            return pid[1]
        kind, cls, key, location, count = pid[:5]
        if kind != "storage":
            raise pickle.UnpicklingError(f"unknown kind of record: {kind}")
        if len(pid) > 5 and pid[5] is not None:
            raise pickle.UnpicklingError("storages that are views of others, as files of PyTorch 0.3 have them, are not supported")
        if key not in self._storages:
            made = cls.__new__(cls)
            data = self._records(key)
            needed = count * getattr(getattr(cls, "dtype", None), "itemsize", 1)
            if len(data) < needed:
                raise pickle.UnpicklingError(f"storage {key} has {len(data)} bytes, {needed} are needed")
            made._bytes = _C._from_bytes(data, _C.uint8, (len(data),))
            made._location = location
            self._storages[key] = made
        return self._storages[key]


class _Unpickler(_Names, pickle.Unpickler):
    """Unpickles any object, which may run any code."""


def _theirs(module):
    """PyTorch's name of a module."""
    return "torch" + module[len("rushlight"):] if module == "rushlight" or module.startswith("rushlight.") else module


# Names that files may use without being declared safe, as in PyTorch.
_HARMLESS = frozenset(
    "collections.OrderedDict collections.Counter builtins.set builtins.bytearray __builtin__.set __builtin__.bytearray _codecs.encode torch.Size torch.Tensor "
    "torch.device torch.nn.parameter.Parameter torch._utils._rebuild_tensor_v2 torch._utils._rebuild_parameter "
    "torch._utils._rebuild_parameter_with_state torch._utils._rebuild_meta_tensor_no_storage torch._tensor._rebuild_from_type_v2".split()
)


#: The protocol of pickles in files.
DEFAULT_PROTOCOL = 2


def _get_layout(name):
    """A layout by its name, in pickles of PyTorch's."""
    return getattr(_C, name.rpartition(".")[2])


#: Types of arguments.
FILE_LIKE = typing.Union[str, os.PathLike, typing.IO[bytes]]
MAP_LOCATION = typing.Optional[typing.Union[typing.Callable, _C.device, str, typing.Dict[str, str]]]


class _SafeUnpickler(_Names, pickle._Unpickler):
    """Unpickles only harmless names, and those that the program has declared safe. A file cannot change classes and functions themselves."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._known = dict(_named(value) for value in _safe)

    def find_class(self, module, name):
        full = f"{_theirs(module)}.{name}"
        if full in self._known:
            return self._known[full]
        kind = name if module in ("torch", "torch.cuda") else None
        if full in _HARMLESS or kind in _CLASSES or isinstance(getattr(_C, kind or "", None), _C.dtype):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(
            f"Unsupported global: GLOBAL {module}.{name} was not an allowed global by default. Please use `torch.serialization.add_safe_globals([{name}])` "
            f"or the `torch.serialization.safe_globals([{name}])` context manager to allowlist this global if you trust this class/function."
        )


    def load_build(self):
        target = self.stack[-2]
        if isinstance(target, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)):
            raise pickle.UnpicklingError(f"the file sets attributes of {target!r}, for the whole process; that is not allowed")
        super().load_build()

    dispatch = dict(pickle._Unpickler.dispatch)
    dispatch[pickle.BUILD[0]] = load_build


def _named(value):
    """A safe global under its name in files."""
    if isinstance(value, tuple):
        return value[1], value[0]
    name = getattr(value, "__qualname__", None) or value.__name__
    return f"{_theirs(pickle.whichmodule(value, name))}.{name}", value


def _their_globals(body):
    """A pickle of protocol 2 in which names of this package are PyTorch's."""
    found, end = [], 0
    for op, name, at in pickletools.genops(body):
        if op.name != "GLOBAL":
            continue
        module, _, name = name.partition(" ")
        theirs = _theirs(module)
        theirs = "torch" if theirs == "torch.storage" and name in _CLASSES else theirs
        if theirs != module:
            found += [body[end:at], pickle.GLOBAL + f"{theirs}\n{name}\n".encode()]
            end = at + len(f"c{module}\n{name}\n".encode())
    return b"".join([*found, body[end:]])


def _pickled(obj, protocol, module=pickle):
    body = io.BytesIO()
    own = module is pickle
    pickler = (_Pickler if own else type("Pickler", (_Storages, module.Pickler), {}))(body, min(protocol, 2) or 2)
    pickler.dump(obj)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", body.getvalue() if own else _their_globals(body.getvalue()))
        archive.writestr("archive/byteorder", "little")
        for key, storage in pickler.storages.values():
            archive.writestr(f"archive/data/{key}", _C._to_bytes(storage._bytes))
        archive.writestr("archive/version", "3\n")
    return out.getvalue()


def _as_path(f):
    return os.fspath(f) if isinstance(f, (str, os.PathLike)) else None


def _holds_parameter(value, depth=0):
    """Whether a value's containers hold a parameter, a tensor with attributes or one without memory: only pickle writes those. (It cannot write every dtype.)"""
    if isinstance(value, Tensor):
        return value.is_meta or (type(value).__name__ == "Parameter" or bool(vars(value))) and value.dtype in _CLASSES.values()
    if depth == 200 or not isinstance(value, (dict, list, tuple)):
        return False
    return any(_holds_parameter(item, depth + 1) for item in (value.values() if isinstance(value, dict) else value))


#: Globals of pickles that only Python's reader restores: tensors with attributes or without memory, sets.
_PYTHON_ONLY = (
    b"torch._tensor\n_rebuild_from_type_v2\n", b"torch._utils\n_rebuild_parameter_with_state\n", b"torch._utils\n_rebuild_meta_tensor_no_storage\n", b"__builtin__\nset\n", b"builtins\nset\n",
)


def _needs_python(source):
    """Whether a file, by its path or its bytes, has an object that only Python's reader restores."""
    try:
        with zipfile.ZipFile(source if isinstance(source, str) else io.BytesIO(source)) as archive:
            main = next((i for i in archive.infolist() if i.filename.endswith("/data.pkl") or i.filename == "data.pkl"), None)
            short = main is not None and main.compress_type == zipfile.ZIP_STORED and main.file_size < 1 << 26
            return short and any(name in body for body in [archive.read(main)] for name in _PYTHON_ONLY)
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def save(obj, f, pickle_module=None, pickle_protocol=2):
    """Writes an object to a file (a path, or anything with ``write``) that ``load`` and PyTorch read.

    ``pickle_module`` (``cloudpickle``, ``dill``) pickles what its ``Pickler`` supports, functions of the program for example.
    """
    module = pickle if pickle_module is None else pickle_module
    path = _as_path(f)
    plain = module is pickle and not _holds_parameter(obj)
    if path is not None:
        if plain and _C._save(obj, path):
            return
        data = _pickled(obj, pickle_protocol, module)
        beside = f"{path}.{os.getpid()}.tmp"
        try:
            with open(beside, "wb") as file:
                file.write(data)
            if os.path.exists(path):
                shutil.copymode(path, beside)
            os.replace(beside, path)
        except BaseException:
            if os.path.exists(beside):
                os.unlink(beside)
            raise
        return
    data = _C._save_bytes(obj) if plain else None
    f.write(_pickled(obj, pickle_protocol, module) if data is None else data)


def _unpickle(data, map_location, options, reader=_Unpickler):
    if not data.startswith(b"PK"):
        from . import _legacy_files

        found = _legacy_files.records(data, options)
        if found is None:
            raise RuntimeError("load: the file was not written by torch.save")
        start, storages = found
        return reader(io.BytesIO(data[start:]), storages.__getitem__, _placer(map_location), **options).load()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        main = next((n for n in names if n.endswith("/data.pkl") or n == "data.pkl"), None)
        if main is None:
            raise RuntimeError("load: the archive has no data.pkl; it was not written by torch.save")
        prefix = main[: -len("data.pkl")]
        unpickler = reader(io.BytesIO(archive.read(main)), lambda key: archive.read(f"{prefix}data/{key}"), _placer(map_location), **options)
        return unpickler.load()


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, encoding="utf-8", **pickle_load_args):
    """Reads a file of ``save`` or of PyTorch. Tensors go to their original device, to the CPU if it is missing, or to ``map_location``.

    With ``weights_only`` (the default without a ``pickle_module``) nothing in the file can run code, and only tensors and plain values are read, and
    objects of classes that ``add_safe_globals`` names. Otherwise ``pickle_module.Unpickler`` reads the file, with further arguments for it.
    """
    weights_only = pickle_module is None if weights_only is None else weights_only
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if weights_only and pickle_load_args:
        raise TypeError(f"load() got an unexpected keyword argument '{next(iter(pickle_load_args))}'")
    options = {"encoding": encoding, **pickle_load_args}
    path = _as_path(f)
    if mmap and path is None:
        raise ValueError("f must be a file path in order to use the mmap argument")
    if not weights_only:
        if path is not None:
            with open(path, "rb") as file:
                data = file.read()
        else:
            data = f.read()
        reader = _Unpickler if pickle_module in (None, pickle) else type("Unpickler", (_Names, pickle_module.Unpickler), {})
        if reader is not _Unpickler or pickle_load_args or _needs_python(data):
            return _unpickle(data, map_location, options, reader)
        try:
            loaded = _C._load_bytes(data, _wants_gpus(map_location))
        except Exception:
            return _unpickle(data, map_location, options)
    elif path is not None:
        if not os.path.exists(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        return _guarded(map_location, options, _C._load, path, bool(mmap), _wants_gpus(map_location))
    else:
        return _guarded(map_location, options, _C._load_bytes, bytes(f.read()), _wants_gpus(map_location))
    return _moved(loaded, map_location)


def _guarded(map_location, options, read, source, *args):
    if args[:-1] != (True,) and _needs_python(source):
        try:
            return _unpickle(_bytes_of(source), map_location, options, _SafeUnpickler)
        except Exception:
            pass  # The reader in Rust supports more dtypes, and has clearer errors.
    try:
        return _moved(read(source, *args), map_location)
    except (RuntimeError, NotImplementedError) as error:
        # The reader in Rust has tensors only, in files since PyTorch 1.6; storages by themselves are objects of Python.
        old = "PyTorch before 1.6" in str(error)
        if old or _safe or "the file holds a storage" in str(error):
            source = _bytes_of(source)
            if old or source.startswith(b"PK"):
                return _unpickle(source, map_location, options, _SafeUnpickler)
        raise pickle.UnpicklingError(
            f"Weights only load failed. {error}. If you trust the file, load it with weights_only=False."
        ) from None


def _bytes_of(source):
    if not isinstance(source, str):
        return source
    with open(source, "rb") as file:
        return file.read()


def _wants_gpus(map_location):
    """Whether tensors go to their original device."""
    return map_location is None or isinstance(map_location, dict) or callable(map_location)


def _placer(map_location):
    """A function that moves a tensor, given its original device, as ``map_location`` (a device, a function, a dictionary of devices) requires."""

    def home(tensor, location):
        kind, _, index = location.partition(":")
        return tensor.to(location) if kind == "cuda" and int(index or 0) < _C._device_count() else tensor

    def placed(tensor, location):
        if map_location is None:
            return home(tensor, location)
        if isinstance(map_location, dict):
            return tensor.to(map_location[location]) if location in map_location else home(tensor, location)
        if not callable(map_location):
            return tensor.to(map_location)
        # PyTorch passes a storage on the CPU; a tensor has the same methods.
        moved = map_location(tensor.cpu(), location)
        return home(tensor, location) if moved is None else moved

    def place(tensor, location):
        # Leaves stay leaves.
        return placed(tensor.detach(), location).requires_grad_() if tensor.requires_grad else placed(tensor, location)

    return place


class SourceChangeWarning(Warning):
    """A class whose source has changed since it was saved. Sources are not saved here, so nothing warns of it."""


def location_tag(storage):
    """The device of a storage as files name it."""
    return str(storage.device)


def default_restore_location(storage, location):
    """A storage (or tensor) on the device that a file names: what ``map_location`` functions return for the usual place."""
    kind, _, index = str(location).partition(":")
    if kind not in ("cpu", "meta", "cuda", "xpu", "hip"):
        raise RuntimeError(f"don't know how to restore data location of {type(storage).__name__} (tagged with {location})")
    if kind == "cpu":
        return storage.cpu()
    if kind != "meta" and int(index or 0) >= _C._device_count():
        raise RuntimeError(
            f"Attempting to deserialize object on {location} but there are {_C._device_count()} accelerators; use torch.load with map_location=torch.device('cpu')"
        )
    return storage.to(location)


def _moved(value, map_location):
    """Moves every tensor as ``map_location`` requires."""
    if map_location is None:
        return value
    place = _placer(map_location)
    parameters = {}

    def move(value):
        if type(value) is not Tensor and isinstance(value, Tensor):
            # One parameter stays one.
            if id(value) not in parameters:
                parameters[id(value)] = type(value)(place(value.detach(), str(value.device)), value.requires_grad)
            return parameters[id(value)]
        if isinstance(value, Tensor):
            return place(value, str(value.device))
        if type(value) is dict:
            return {k: move(v) for k, v in value.items()}
        if type(value) is OrderedDict:
            moved = OrderedDict((k, move(v)) for k, v in value.items())
            moved.__dict__.update(value.__dict__)
            return moved
        if type(value) in (list, tuple):
            return type(value)(move(v) for v in value)
        return value

    return move(value)


_safe = []


def add_safe_globals(safe_globals):
    """Declares classes and functions that ``load`` with ``weights_only`` may use; ``(object, name)`` sets another name."""
    _safe.extend(safe_globals)


def get_safe_globals():
    return list(_safe)


def clear_safe_globals():
    _safe.clear()


class safe_globals:
    """``add_safe_globals`` for a block."""

    def __init__(self, safe_globals):
        self._added = list(safe_globals)

    def __enter__(self):
        _safe.extend(self._added)

    def __exit__(self, *exception):
        del _safe[len(_safe) - len(self._added):]
