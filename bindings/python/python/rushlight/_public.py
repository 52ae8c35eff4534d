"""Public names of PyTorch that this package lacks.

``_public_names.txt`` lists them by module; ``bindings/python/public_names.py`` writes it. Under ``install()`` a statement ``from torch.x import name`` gives an
object that raises when it is used, with the reason, so that a library that imports more than it uses still loads. ``hasattr`` and plain attribute access find
nothing, so that libraries that ask for a feature get an honest answer. Names that PyTorch has in several modules and this package in another one of them
(``_public_aliases.txt``) are that module's.
"""

import functools
import importlib
import importlib.util
import opcode
import os
import sys

from . import _absent

_PACKAGE = __package__

_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]

#: Reasons by the beginning of a module's name; the longest counts.
_REASONS = {
    "": "it is not part of this version",
    "ao": _absent._QUANTISED,
    "nn.intrinsic": _absent._QUANTISED, "nn.qat": _absent._QUANTISED, "nn.quantizable": _absent._QUANTISED, "nn.quantized": _absent._QUANTISED,
    "quantization": _absent._QUANTISED,
    "backends": "backends of PyTorch's own libraries are not used here",
    "compiler": _absent._COMPILER, "fx.experimental": _absent._COMPILER, "fx.passes": _absent._COMPILER,
    "cuda": "memory, streams and graphs of GPUs are managed in Rust; torch.cuda has what programs need of them",
    "distributed": "it is not supported; use DistributedDataParallel, fully_shard, tensor.parallel or pipelining",
    "distributed.elastic": "jobs are launched by `rushlight run`, or by torchrun's own launcher",
    "distributed.rpc": "remote procedure calls are not supported; use collectives",
    "export": "programs are traced as they are; torch.export has export, save, load and Dim", "onnx": _absent._EXPORT,
    "sparse": "the sparse layouts here are COO, CSR and CSC",
    "jit": "TorchScript's compiler is not supported; torch.jit has trace, load and save",
    "library": "Triton kernels are compiled for PyTorch's own tensors; write the op with torch.library.custom_op",
    "masked": "torch.masked has the public functions; PyTorch's tables of ops by kind are private",
    "nested": "torch.nested has the public functions; PyTorch's private ones are not here",
    "package": "torch.package is not supported; torch.save keeps state",
    "utils.benchmark": "only Timer and Measurement of torch.utils.benchmark are supported",
    "utils.cpp_extension": "extensions in C++ are compiled as they are",
    "utils.data.datapipes": "only the data pipes of torch.utils.data.datapipes.iter that programs use are supported; write a Dataset",
}

#: Modules of files that PyTorch has as packages.
PACKAGES = frozenset("accelerator backends.cudnn compiler cpu mps profiler utils.benchmark".split())


@functools.lru_cache(None)
def table():
    """Absent names by module, without the leading ``torch.``."""
    found = {}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "_public_names.txt"), encoding="utf-8") as file:
        for line in file:
            module, _, names = line.partition(":")
            if not line.startswith("#"):
                found[module.partition(".")[2]] = frozenset(names.split())
    return found


def _places(file):
    """Names with places by module, of lines ``module place: name name=there …``: ``(place, name there)``."""
    found = {}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), file), encoding="utf-8") as lines:
        for line in lines:
            places, _, names = line.partition(":")
            if not line.startswith("#"):
                here, there = places.split()
                pairs = (name.partition("=") for name in names.split())
                found.setdefault(here, {}).update({name: (there, other or name) for name, _, other in pairs})
    return found


@functools.lru_cache(None)
def aliases():
    """Which module here has a name that PyTorch has in another, too: by module, without the leading ``torch.``, and name."""
    return {here.partition(".")[2]: names for here, names in _places("_public_aliases.txt").items()}


def alias(module, name):
    """The value of a name that another module here has, a module of such names, or None."""
    place = aliases().get(module, {}).get(name)
    if place is not None:
        home = importlib.import_module(_PACKAGE + place[0].partition("torch")[2])
        return getattr(home, place[1], None)
    path = f"{module}.{name}" if module else name
    return importlib.import_module(f"{_PACKAGE}.{path}") if path in aliases() and path in table() else None


def others(module):
    """Names of an absent module that other modules here have, with their values."""
    found = ((name, alias(module, name)) for name in aliases().get(module, ()))
    return {name: value for name, value in found if value is not None}


@functools.lru_cache(None)
def homes():
    """Where PyTorch defines what this package defines elsewhere: ``__module__`` by module here and name."""
    return {here: {name: there for name, (there, _) in names.items()} for here, names in _places("_public_homes.txt").items()}


def reason(module):
    """Why a name of a module is absent."""
    parts = module.split(".") if module else []
    return next(_REASONS[start] for start in (".".join(parts[:n]) for n in range(len(parts), -1, -1)) if start in _REASONS)


def module(name):
    """The reason and the names of an absent module; None for others."""
    return (reason(name), " ".join(sorted(table()[name]))) if name in table() else None


def absent(module, name):
    """The object for a name of PyTorch that a module lacks; None if PyTorch has no such name."""
    if name not in table().get(module, ()):
        return None
    path = f"torch.{module}.{name}" if module else f"torch.{name}"
    return _absent.make(path, reason(module))


def _is_import(frame):
    """Whether a frame runs a statement ``from … import …``."""
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


def serve(module, served):
    """Lets imports find the absent names of a module; ``served`` is its name without the leading ``torch.``."""
    inner = vars(module).get("__getattr__")
    if getattr(inner, "_serves", False):
        return

    # How a name was refused, by name: what is not there once is not there later, and libraries ask often.
    refused = {}

    def __getattr__(name):
        if name == "__path__":
            # Every ``from module import name`` asks a module for it.
            raise AttributeError(name)
        known = refused.get(name)
        if known is not None and not _is_import(sys._getframe(1)):
            raise known[0](*known[1])
        try:
            if inner is not None:
                return inner(name)
            raise AttributeError(f"module '{module.__name__}' has no attribute '{name}'")
        except AttributeError as error:
            found = None
            if not name.startswith("__"):
                found = alias(served, name)
                if found is not None:
                    vars(module)[name] = found
                elif _is_import(sys._getframe(1)):
                    found = absent(served, name)
            if found is None:
                refused[name] = error.__reduce__()[:2]
                raise
        return found

    __getattr__._serves = True
    module.__getattr__ = __getattr__
    if served in PACKAGES and not hasattr(module, "__path__"):
        module.__path__ = []


def find(name):
    """The specification of an absent module by its name here; None for others."""
    rest = name.partition(".")[2]
    entry = _absent.MODULES.get(rest) or module(rest)
    if entry is None:
        return None
    return importlib.util.spec_from_loader(name, _absent._Loader(*entry, others=functools.partial(others, rest)), is_package=True)
