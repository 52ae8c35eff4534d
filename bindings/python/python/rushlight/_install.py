"""``torch`` and its relatives served from this package, for ``rushlight.install()`` and ``python -m rushlight``."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import types

from . import _public as _absent_names

#: Top-level names and the packages that serve them.
_ROOTS = {
    "torch": "rushlight", "torchvision": "rushlight.vision", "torchaudio": "rushlight.audio",
    "functorch": "rushlight._functorch_api", "intel_extension_for_pytorch": "rushlight._ipex",
    "oneccl_bindings_for_pytorch": "rushlight._oneccl", "horovod": "rushlight._horovod",
    "deepspeed": "rushlight._deepspeed",
}


class _Loader(importlib.abc.Loader):
    def __init__(self, target):
        self._target, self._own = target, None

    def create_module(self, spec):
        module = importlib.import_module(self._target)
        # The import system is about to overwrite the module's own spec.
        self._own = {k: getattr(module, k, None) for k in ("__spec__", "__loader__", "__package__")}
        return module

    def get_code(self, name):
        """For ``python -m torch.distributed.run`` and its like, which run a module's code without importing it."""
        return importlib.util.find_spec(self._target).loader.get_code(self._target)

    def exec_module(self, module):
        if self._own is None:
            # A module that is loaded again.
            package = sys.modules[self._target.rpartition(".")[0]]
            module.__spec__ = spec = importlib.machinery.PathFinder.find_spec(self._target, package.__path__)
            module.__name__ = self._target
            spec.loader.exec_module(module)
            _rename(module, _public)
            return
        for name, value in self._own.items():
            setattr(module, name, value)


class _Distribution(importlib.metadata.Distribution):
    """The metadata of a package that is served and not installed: libraries ask for its version before they use it."""

    def __init__(self, name, version):
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename):
        return self._text if filename == "METADATA" else None

    def locate_file(self, path):
        return os.path.join(os.path.dirname(__file__), path)


class _Spec(importlib.machinery.ModuleSpec):
    """The specification of a module with another name, which a module's representation shows. Its package is the one that it was imported in."""

    parent = property(lambda self: self._parent)

    @classmethod
    def of(cls, spec, name, parent=None):
        made = cls.__new__(cls)
        made.__dict__.update(spec.__dict__)
        # The import system would end the initialisation of the other one only; the module is complete.
        made._parent, made.name, made._initializing = parent or spec.parent, name, False
        return made


class _Finder(importlib.abc.MetaPathFinder):
    def find_distributions(self, context=None):
        """For ``importlib.metadata.version("deepspeed")``."""
        name = getattr(context, "name", None)
        if name is None or name.replace("-", "_").lower() != "deepspeed":
            return []
        return [_Distribution("deepspeed", importlib.import_module(_ROOTS["deepspeed"]).__version__)]

    def find_spec(self, name, path=None, target=None):
        root, _, rest = name.partition(".")
        if root not in _ROOTS:
            return None
        served = _ROOTS[root] + (f".{rest}" if rest else "")
        try:
            found = importlib.util.find_spec(served)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ModuleNotFoundError(f"No module named '{name}' in rushlight, which serves '{root}' here", name=name)
        spec = importlib.machinery.ModuleSpec(name, _Loader(served), is_package=found.submodule_search_locations is not None)
        return _Spec.of(spec, name, served if spec.submodule_search_locations is not None else served.rpartition(".")[0])


class _Named(importlib.abc.Loader):
    """A loader of this package's modules whose names become PyTorch's once they are loaded."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        _rename(module, _public)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class _Namer(importlib.abc.MetaPathFinder):
    """Finds this package's own modules as the other finders do, and gives them PyTorch's names."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "rushlight":
            return None
        for finder in sys.meta_path:
            found = None if finder in (self, _finder) or not hasattr(finder, "find_spec") else finder.find_spec(name, path, target)
            if found is not None:
                if found.loader is not None:
                    found.loader = _Named(found.loader)
                return found
        return None


def _public(name):
    """PyTorch's name of a module of this package; None for modules that only this package has."""
    for root, served in sorted(_ROOTS.items(), key=lambda pair: -len(pair[1])):
        if name == served or name.startswith(served + "."):
            return root + name[len(served):]
    return None


#: Compiled functions of that module say another name.
_FUNCTIONS = {"torch._C._torch": "torch"}


def _private(name):
    """This package's name of a module of PyTorch's."""
    root, _, rest = name.partition(".")
    return None if root not in _ROOTS else _ROOTS[root] + (f".{rest}" if rest else "")


def _rename(module, to):
    """Gives a module, its classes and its functions another name. Libraries look at it: ``type(x).__module__``, pickles, messages."""
    old = module.__name__
    name = to(old)
    if name is None:
        return
    module.__name__ = name
    if isinstance(getattr(module, "__spec__", None), importlib.machinery.ModuleSpec):
        module.__spec__ = _Spec.of(module.__spec__, name)
    if to is _public:
        sys.modules.setdefault(name, module)
        if name.partition(".")[0] == "torch":
            _absent_names.serve(module, name.partition(".")[2])
    homes = _absent_names.homes().get(name, {}) if to is _public else {}
    for key, value in list(vars(module).items()):
        if isinstance(value, types.ModuleType) and value.__name__.startswith(f"{old}.") and getattr(value.__spec__, "loader", None) is None:
            # A module that another one has made.
            _rename(value, to)
        elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            home = value.__module__
            renamed = (homes.get(key) or _FUNCTIONS.get(to(home)) or to(home)) if isinstance(home, str) else None
            if renamed is not None:
                try:
                    value.__module__ = renamed
                except (AttributeError, TypeError):
                    # A compiled class whose attributes cannot be set.
                    pass
                for method in vars(value).values() if isinstance(value, type) else ():
                    if isinstance(method, types.FunctionType) and method.__module__ == home:
                        method.__module__ = renamed


def _rename_all(to):
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "rushlight" and isinstance(module, types.ModuleType):
            _rename(module, to)


_finder = _Finder()
_namer = _Namer()

#: Holds a ``sitecustomize`` that installs the finder in Python programs started from this one: spawned workers and
#: launched scripts.
_BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bootstrap")


def _children(serve):
    """Whether programs that this one starts are served, too."""
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != _BOOTSTRAP]
    paths = [_BOOTSTRAP, *paths] if serve else paths
    if paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    else:
        os.environ.pop("PYTHONPATH", None)


def stand_in(name):
    """Called by a shim (``_shims``) when it is imported: this package takes its place. Children find the shim by themselves."""
    del sys.modules[name]
    install(children=False)
    sys.modules[name] = importlib.import_module(_ROOTS[name])


def install(children=True):
    """From now on ``import torch``, ``torchvision``, ``torchaudio``, ``intel_extension_for_pytorch``, ``oneccl_bindings_for_pytorch``, ``horovod`` and ``deepspeed``
    give this package, whether or not they are installed; in Python programs started from this one, too."""
    if _finder not in sys.meta_path:
        taken = [name for name in ("torch", "torchvision") if name in sys.modules and sys.modules[name] is not sys.modules.get(_ROOTS[name])]
        if taken:
            raise RuntimeError(f"rushlight.install() must run before '{taken[0]}' is imported")
        sys.meta_path[:0] = [_finder, _namer]
        _rename_all(_public)
        if children:
            _children(True)


def uninstall():
    """Takes ``install`` back, for modules imported from now on."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        sys.meta_path.remove(_namer)
        _children(False)
    for name in [n for n in sys.modules if n.partition(".")[0] in _ROOTS and sys.modules[n] is sys.modules.get(_private(n))]:
        del sys.modules[name]
    _rename_all(_private)
