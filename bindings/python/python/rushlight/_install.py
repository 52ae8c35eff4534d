"""``torch`` and its relatives served from this package, for ``rushlight.install()`` and ``python -m rushlight``."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

#: Top-level names and the packages that serve them.
_ROOTS = {
    "torch": "rushlight", "torchvision": "rushlight.vision", "intel_extension_for_pytorch": "rushlight._ipex",
    "oneccl_bindings_for_pytorch": "rushlight._oneccl", "horovod": "rushlight._horovod",
}


class _Loader(importlib.abc.Loader):
    def __init__(self, target):
        self._target = target

    def create_module(self, spec):
        module = importlib.import_module(self._target)
        # The import system is about to overwrite the module's own spec.
        self._own = {k: getattr(module, k, None) for k in ("__spec__", "__loader__", "__package__")}
        return module

    def get_code(self, name):
        """For ``python -m torch.distributed.run`` and its like, which run a module's code without importing it."""
        return importlib.util.find_spec(self._target).loader.get_code(self._target)

    def exec_module(self, module):
        for name, value in self._own.items():
            setattr(module, name, value)


    def get_code(self, name):
        """The code, for ``python -m``."""
        return importlib.util.find_spec(self._target).loader.get_code(self._target)


class _Finder(importlib.abc.MetaPathFinder):
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
        return importlib.machinery.ModuleSpec(name, _Loader(served), is_package=found.submodule_search_locations is not None)


_finder = _Finder()

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
    """From now on ``import torch``, ``torchvision``, ``intel_extension_for_pytorch``, ``oneccl_bindings_for_pytorch`` and ``horovod`` give this
    package, whether or not they are installed; in Python programs started from this one, too."""
    if _finder not in sys.meta_path:
        taken = [name for name in ("torch", "torchvision") if name in sys.modules and not sys.modules[name].__name__.startswith("rushlight")]
        if taken:
            raise RuntimeError(f"rushlight.install() must run before '{taken[0]}' is imported")
        sys.meta_path.insert(0, _finder)
        if children:
            _children(True)


def uninstall():
    """Takes ``install`` back, for modules imported from now on."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        _children(False)
    for name in [n for n in sys.modules if n.partition(".")[0] in _ROOTS and sys.modules[n].__name__.startswith("rushlight")]:
        del sys.modules[name]
