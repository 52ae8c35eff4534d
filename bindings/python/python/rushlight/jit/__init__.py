"""``torch.jit``: functions and modules marked for TorchScript run as plain Python."""

import typing

from .. import _absent

__all__ = [
    "Attribute", "Error", "Final", "ScriptFunction", "ScriptModule", "TracerWarning", "annotate", "enable_onednn_fusion", "export", "freeze", "fuser", "ignore",
    "interface", "is_scripting", "is_tracing", "isinstance", "load", "optimize_for_inference", "optimized_execution", "save", "script", "script_if_tracing",
    "script_method", "trace", "trace_module", "unused",
]

_NO_FILES = "TorchScript's graphs and files are not supported; models run as they are, and torch.save keeps their state"

#: A mark for constants: ``Final[int]``.
Final = typing.Final

_notice = []


def script(obj=None, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """Returns the function, class or module unchanged and warns once."""
    if not _notice:
        _notice.append(True)
        import warnings

        warnings.warn("rushlight: torch.jit.script returns functions and modules unchanged", stacklevel=2)
    return (lambda marked: marked) if obj is None else obj


def ignore(drop=False, **kwargs):
    """A mark for a compiler; it has no effect."""
    return drop if callable(drop) else (lambda function: function)


def _as_it_is(fn):
    """Returns the function unchanged."""
    return fn


script_if_tracing = export = unused = interface = script_method = _overload = _overload_method = _script_if_tracing = _as_it_is


def is_scripting():
    """Whether code is being compiled: always False."""
    return False


def is_tracing():
    """Whether code is being traced: always False."""
    return False


def annotate(the_type, the_value):
    """The value."""
    return the_value


def isinstance(obj, target_type):
    """Whether an object is of a type, which may be a container's, such as ``List[int]``."""
    import builtins

    for kind in target_type if builtins.isinstance(target_type, tuple) else (target_type,):
        origin = typing.get_origin(kind)
        if builtins.isinstance(obj, origin or kind):
            return True
    return False


class Attribute(typing.NamedTuple):
    """A value with its type."""

    value: object
    type: object


class ScriptModule(metaclass=_absent._AbsentClass):
    """The class of compiled modules. There are none."""

    _path, _reason = "torch.jit.ScriptModule", _NO_FILES


class Error(RuntimeError):
    """An error of the compiler; never raised."""


class TracerWarning(Warning):
    """A warning of the tracer; never raised."""


class _Fusion:
    """A context without effect: there is no compiler whose choices it could change."""

    def __init__(self, *args):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None


fuser = optimized_execution = _Fusion


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """Returns the module unchanged."""
    return mod


optimize_for_inference = freeze


def set_fusion_strategy(strategy):
    """No effect: there is no fusing compiler. Returns the previous setting."""
    return []


def enable_onednn_fusion(enabled):
    """A context without effect: no compiler fuses ops."""


def onednn_fusion_enabled():
    """Whether a compiler fuses ops: always False."""
    return False


_absent.fill(globals(), "torch.jit", _NO_FILES, "_get_trace_graph CompilationUnit RecursiveScriptModule ScriptFunction TopLevelTracedModule load save trace trace_module fork wait")


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name in ("annotations", "_script", "_trace"):
        import importlib

        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"rushlight has no 'jit.{name}': {_NO_FILES}")
