"""Names of PyTorch that can be imported here and raise when they are used.

Libraries import more than they use. A name of a feature that is not supported exists as PyTorch's kind of object and raises on use, with the reason.
``MODULES`` is the table: a module, why it is absent, its names, and the module here that has those of its names that work. A capital letter makes a class, a
small one a function.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys

_EXPORT = "exporting is not supported; models run as they are, and torch.save keeps their state"
_COMPILER = "there is no compiler to configure or ask; models run as they are"
_QUANTISED = "quantised tensors are not supported"
_SYMBOLIC = "sizes are numbers, never symbols"

#: Modules with absent names only, relative to this package.
MODULES = {
    "_export": (_EXPORT, ""),
    "_export.error": (_EXPORT, "InternalError"),
    "_higher_order_ops.associative_scan": (_COMPILER, "associative_scan"),
    "_higher_order_ops.flex_attention": (_COMPILER, "flex_attention"),
    "_higher_order_ops.inline_asm_elementwise": ("it runs assembly of GPUs", "inline_asm_elementwise"),
    "_inductor.constant_folding": (_COMPILER, "constant_fold"),
    "_inductor.custom_graph_pass": (_COMPILER, "CustomGraphPass get_hash_for_files"),
    "_inductor.freezing_utils": (_COMPILER, "maybe_set_is_frozen_param"),
    "_inductor.fx_passes": (_COMPILER, ""),
    "_inductor.fx_passes.freezing_patterns": (_COMPILER, "freezing_passes register_freezing_graph_pattern"),
    "_inductor.inductor_prims": (_COMPILER, ""),
    "_inductor.ir": (_COMPILER, "Pointwise TensorBox"),
    "_inductor.lowering": (_COMPILER, "register_lowering to_dtype"),
    "_inductor.pattern_matcher": (_COMPILER, "Arg CallFunction KeywordArg Match filter_nodes"),
    "_inductor.utils": (_COMPILER, ""),
    "_inductor.virtualized": (_COMPILER, "ops"),
    "_subclasses": (_COMPILER, "FakeTensor FakeTensorMode"),
    "_subclasses.fake_tensor": (_COMPILER, "FakeTensor FakeTensorConverter FakeTensorMode is_fake", "._fake_tensors"),
    "ao": (_QUANTISED, ""),
    "ao.quantization": (_QUANTISED, "DeQuantStub FakeQuantize FakeQuantizeBase MinMaxObserver ObserverBase QConfig QConfigMapping QuantStub convert fuse_modules fuse_modules_qat get_default_qat_qconfig get_default_qconfig prepare prepare_qat quantize_dynamic"),
    "ao.quantization.fx": (_QUANTISED, ""),
    "ao.quantization.fx._decomposed": (_QUANTISED, "quantize_per_channel_group quantized_decomposed_lib", "._token_checks"),
    "ao.quantization.fx._equalize": (_QUANTISED, "convert_eq_obs update_obs_for_equalization"),
    "ao.quantization.qconfig": (_QUANTISED, "QConfig"),
    "ao.nn": (_QUANTISED, ""),
    "ao.nn.quantized": (_QUANTISED, "Conv2d Linear"),
    "export.decomp_utils": (_EXPORT, "CustomDecompTable"),
    "fx.experimental.proxy_tensor": (_COMPILER, "ProxyTorchDispatchMode get_proxy_mode make_fx"),
    "package": ("torch.package is not supported; torch.save keeps state", "PackageExporter PackageImporter"),
    "quantization": (_QUANTISED, "DeQuantStub FakeQuantize FakeQuantizeBase MinMaxObserver ObserverBase QConfig QuantStub QuantWrapper convert default_dynamic_qconfig default_qat_qconfig default_qconfig fuse_modules fuse_modules_qat get_default_qat_qconfig get_default_qconfig prepare prepare_qat quantize quantize_dynamic"),
    "sparse._triton_ops_meta": ("Triton's kernels of sparse matrices are for PyTorch's own tensors", "get_meta minimize update"),
    "utils._sympy": (_SYMBOLIC, ""),
    "utils._sympy.numbers": (_SYMBOLIC, "IntInfinity NegativeIntInfinity"),
    "utils._sympy.value_ranges": (_SYMBOLIC, "ValueRanges"),
}

#: Functions of ``torch`` itself.
FUNCTIONS = {
    _QUANTISED: "dequantize fake_quantize_per_channel_affine fake_quantize_per_tensor_affine quantize_per_channel quantize_per_tensor",
    _SYMBOLIC: "SymBool SymFloat SymInt",
}

#: Packages of ``torch`` that the table creates.
PACKAGES = frozenset(name for name in MODULES if "." not in name)


def _error(path, reason):
    return NotImplementedError(f"rushlight has no '{path}': {reason}")


class _AbsentAttribute(NotImplementedError, AttributeError):
    """An attribute of an absent class; ``hasattr`` is False."""


class _Member:
    """A constant of an absent class, such as a member of an enumeration."""

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return self._name


class _AbsentClass(type):
    """The class of absent classes. They have no instances."""

    def __call__(cls, *args, **kwargs):
        raise _error(cls._path, cls._reason)

    def __getattr__(cls, name):
        if name.isupper() and not name.startswith("_"):
            return _Member(f"{cls.__name__}.{name}")
        if name.startswith("__"):
            raise AttributeError(name)
        raise _AbsentAttribute(f"rushlight has no '{cls._path}.{name}': {cls._reason}")

    def __getitem__(cls, parameters):
        return cls


def absent_class(path, reason):
    """A class that raises when it is instantiated. ``isinstance`` is always False."""
    module, _, name = path.rpartition(".")
    return _AbsentClass(name, (), {"_path": path, "_reason": reason, "_absent": True, "__module__": module, "__doc__": f"Absent: {reason}."})


def absent_function(path, reason):
    """A function that raises when it is called; one that asks whether there is a feature says no."""
    module, _, name = path.rpartition(".")

    def absent(*args, **kwargs):
        if name == "is_available":
            return False
        raise _error(path, reason)

    absent.__name__ = absent.__qualname__ = name
    absent.__module__, absent.__doc__ = module, f"Absent: {reason}."
    absent._absent = True
    return absent


def make(path, reason):
    """The object for an absent name."""
    return (absent_class if path.rpartition(".")[2].lstrip("_")[:1].isupper() else absent_function)(path, reason)


def fill(namespace, path, reason, names):
    """Gives a module its absent names. Existing names stay."""
    for name in names.split():
        namespace.setdefault(name, make(f"{path}.{name}", reason))


class _Loader(importlib.abc.Loader):
    """Fills a module with absent names. Those of the module ``home`` and what ``others`` gives are real."""

    def __init__(self, reason, names, home=None, others=dict):
        self._reason, self._names, self._home, self._others = reason, names, home, others

    def exec_module(self, module):
        path = module.__name__.replace("rushlight", "torch", 1)
        module.__doc__ = f"``{path}``, absent: {self._reason}."
        module.__path__ = []
        fill(module.__dict__, path, self._reason, self._names)
        module.__all__ = [name for name in self._names.split() if not name.startswith("_")]
        if self._home is not None:
            home = importlib.import_module(self._home, __package__)
            module.__dict__.update({name: getattr(home, name) for name in home.__all__})
        module.__dict__.update(self._others())
        reason = self._reason

        def missing(name):
            raise AttributeError(f"rushlight has no '{path}.{name}': {reason}")

        module.__getattr__ = missing


class _Finder(importlib.abc.MetaPathFinder):
    """Creates the modules of the table. Searched last, after files."""

    def find_spec(self, name, path=None, target=None):
        root, _, rest = name.partition(".")
        if root != __package__ or not rest or rest.startswith("_C"):
            return None
        if rest in MODULES:
            return importlib.machinery.ModuleSpec(name, _Loader(*MODULES[rest]), is_package=True)
        from ._public import find

        return find(name)


def add_modules(package, reason, table):
    """Adds a package's modules to the table: ``{"fsdp.wrap": "names"}``."""
    prefix = package.partition(".")[2]
    MODULES.update({f"{prefix}.{name}": (reason, names) for name, names in table.items()})


sys.meta_path.append(_Finder())
