"""``torch.jit``: traced and compiled programs, and archives of PyTorch, run without their source."""

import builtins
import typing

from .. import _absent

__all__ = [
    "Attribute", "Error", "Final", "ScriptFunction", "ScriptModule", "TracerWarning", "annotate", "enable_onednn_fusion", "export", "freeze", "fuser", "ignore",
    "interface", "is_scripting", "is_tracing", "isinstance", "load", "optimize_for_inference", "optimized_execution", "save", "script", "script_if_tracing",
    "script_method", "trace", "trace_module", "unused",
]

_NO_FILES = "it is not part of programs here; use torch.jit.script or torch.jit.trace"

#: A mark for constants: ``Final[int]``.
Final = typing.Final


def script(obj=None, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """Compiles a function or module to a program: plain tensor code with control flow, calls of ops and of other functions and modules.

    Code that a program cannot hold is left as it is, with a warning that names the reason; ``torch.jit.save`` refuses it. Classes are returned unchanged.
    """
    from ..nn import Module

    if obj is None:
        return script
    if builtins.isinstance(obj, type) or hasattr(obj, "_program"):
        return obj
    from ._compile import CompileError, compile_function, compile_module
    from ._program import ProgramModule, ScriptedFunction

    try:
        if builtins.isinstance(obj, Module):
            made = ProgramModule(compile_module(obj))
            made.training = obj.training
            return made
        return ScriptedFunction(compile_function(obj), obj)
    except (CompileError, RuntimeError, SyntaxError) as error:
        import warnings

        warnings.warn(f"{error}; torch.jit.script returns it unchanged", stacklevel=2)
        return obj


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


def trace(
    func, example_inputs=None, optimize=None, check_trace=True, check_inputs=None, check_tolerance=1e-5, strict=True, _force_outplace=False, _module_class=None,
    _compilation_unit=None, example_kwarg_inputs=None, _store_inputs=True,
):
    """Runs a function or module on example inputs and records its ops as a program, which runs on tensors of other sizes too.

    Branches on values are taken as they are for the examples.
    """
    from ._program import trace

    return trace(func, example_inputs, check_trace, check_inputs, check_tolerance, example_kwarg_inputs)


def load(f, map_location=None, _extra_files=None, _restore_shapes=False):
    """Reads an archive of a traced or scripted module, written by PyTorch or by ``save`` here. No code of the file is run as Python.

    ``_extra_files``: a dictionary whose keys name further files of the archive; their contents become its values.
    """
    from ._program import ProgramModule, extra_of, opened, read_extra

    program, source = opened(f)
    if _extra_files:
        found = read_extra(source, _extra_files)
        # As in PyTorch, values are bytes, also of files that the archive does not have.
        _extra_files.update({name: given if found[name] is None else found[name] for name, given in extra_of(_extra_files)})
    module = ProgramModule(program)
    return module if map_location is None else module.to(map_location)


def save(m, f, _extra_files=None):
    """Writes a traced or loaded module as a ``.rlm`` file, which ``load`` reads here. PyTorch does not read it.

    ``_extra_files``: names and contents of further files of the archive.
    """
    if not hasattr(m, "_program"):
        raise RuntimeError("torch.jit.save takes a traced or compiled module: torch.jit.save(torch.jit.trace(model, example), f)")
    m.save(f, _extra_files)


class _ScriptMeta(type):
    def __instancecheck__(cls, value):
        from ._program import ProgramModule, ScriptedFunction, TracedFunction

        return builtins.isinstance(value, (TracedFunction, ScriptedFunction) if cls.__name__ == "ScriptFunction" else ProgramModule)


class ScriptModule(metaclass=_ScriptMeta):
    """The class of modules that run programs: ``isinstance`` knows them."""


class RecursiveScriptModule(ScriptModule):
    """The class of loaded modules."""


class TopLevelTracedModule(ScriptModule):
    """The class of traced modules."""


class ScriptFunction(metaclass=_ScriptMeta):
    """The class of traced functions."""


class Error(RuntimeError):
    """An error of the compiler; never raised."""


from .._trace import TracerWarning  # noqa: E402


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
    """The module's program for inference: constants folded, batch norms folded into convolutions. Its weights do not train."""
    from ._program import ProgramModule

    if not builtins.isinstance(mod, ProgramModule):
        raise RuntimeError("Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'.")
    if mod.training:
        raise RuntimeError("Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before freezing.")
    if preserved_attrs or not optimize_numerics:
        raise NotImplementedError("torch.jit.freeze: preserved_attrs and optimize_numerics=False are not supported")
    made = ProgramModule(mod._program.freeze())
    made.training, made._is_frozen = False, True
    return made


def optimize_for_inference(mod, other_methods=None):
    """The frozen module: modules that are not frozen yet are."""
    if other_methods:
        raise NotImplementedError("torch.jit.optimize_for_inference: other methods are not supported")
    return mod if getattr(mod, "_is_frozen", False) else freeze(mod.eval())


def set_fusion_strategy(strategy):
    """No effect: there is no fusing compiler. Returns the previous setting."""
    return []


def enable_onednn_fusion(enabled):
    """A context without effect: no compiler fuses ops."""


def onednn_fusion_enabled():
    """Whether a compiler fuses ops: always False."""
    return False


_absent.fill(globals(), "torch.jit", _NO_FILES, "CompilationUnit trace_module fork wait")


def _get_trace_graph(f, args=(), kwargs=None, *options, **more):
    """Calls a function or module and returns the graph of its ops, for tools that count or draw them, and what it returned."""
    from ._traced_graph import _get_trace_graph

    return _get_trace_graph(f, args, kwargs, *options, **more)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name in ("annotations", "_script", "_trace", "_program"):
        import importlib

        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"rushlight has no 'jit.{name}': {_NO_FILES}")
