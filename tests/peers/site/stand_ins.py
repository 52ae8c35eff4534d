"""Serves PyTorch's harness of tests over Rushlight, with stand-ins for private names that it imports.

A stand-in raises ``NotImplementedError`` when it is called, so a test that needs one fails by name. ``stand_ins.txt`` has a line each:
``torch.module`` (a whole module), ``torch.module.name`` with ``absent``, or with ``=`` and the Python expression of a value (``:=`` replaces a
name that the front has).
"""

import importlib
import importlib.machinery
import os
import pathlib
import sys
import types

HERE = pathlib.Path(__file__).resolve().parent


class Absent:
    """A name that the front does not have. It can be imported, subclassed and used as a decorator; calls of anything else raise."""

    def __init__(self, path):
        self.__dict__.update(_path=path, __name__=path.rpartition(".")[2], __module__=path.rpartition(".")[0])

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self._path} is a name of PyTorch's that its tests use and Rushlight does not have")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._path}.{name}")

    def __mro_entries__(self, bases):
        return ()

    def __bool__(self):
        return False

    def __or__(self, other):
        return self

    __ror__ = __or__


class Invariants:
    """``torch.sparse.check_sparse_tensor_invariants``, which every test reads and sets; there are no sparse tensors."""

    is_enabled = staticmethod(lambda: False)
    enable = disable = staticmethod(lambda: None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False

    def __call__(self, function):
        return function


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class _Finder:
    """Finds the harness in PyTorch's sources, and modules of the list."""

    def __init__(self):
        self.modules = set()

    def add(self, name):
        """Serves a module of the list, below a module that is not a package in the front."""
        self.modules.add(name)
        parent = importlib.import_module(name.rpartition(".")[0])
        if not hasattr(parent, "__path__"):
            parent.__path__ = []

    def find_spec(self, name, path=None, target=None):
        if name.startswith("torch.testing."):
            return importlib.machinery.PathFinder.find_spec(name, path)
        if name in self.modules:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def entries():
    """(name, kind, value) of each line of the list."""
    for line in (HERE / "stand_ins.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            words = line.split(None, 2)
            yield words[0], words[1], words[2] if len(words) > 2 else ""


def _owner(path):
    """The module or class that a dotted path names."""
    try:
        return importlib.import_module(path)
    except ImportError:
        home, _, last = path.rpartition(".")
        return getattr(_owner(home), last)


def install(sources):
    """Serves the harness from now on."""
    import torch
    import torch.testing

    if os.environ.get("PEERS_FORK"):
        # Ranks are forked from the process of tests: importing the harness in each would take most of the time.
        get_context = torch.multiprocessing.get_context
        torch.multiprocessing.get_context = lambda method=None: get_context("fork" if method == "spawn" else method)
    listed, finder = list(entries()), _Finder()
    sys.meta_path.insert(0, finder)
    torch.testing.__path__ = [os.path.join(sources, "torch", "testing")]
    for name, kind, value in listed:
        if kind == "module":
            finder.add(name)
            continue
        home, _, last = name.rpartition(".")
        owner = _owner(home)
        if kind == ":=" or (last not in vars(owner) if isinstance(owner, _Module) else not hasattr(owner, last)):
            setattr(owner, last, Absent(name) if kind == "absent" else eval(value, {"torch": torch, "Invariants": Invariants}))  # noqa: S307
