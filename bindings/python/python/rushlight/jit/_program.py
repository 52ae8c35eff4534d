"""Modules that run programs: of ``torch.jit.load``, ``torch.jit.trace`` and ``torch.export``."""

import functools
import os

from .. import _trace
from .._C import Tensor, _Program
from .._settings import is_autocast_enabled
from ..nn import Module, Parameter
from ..overrides import _modes
from ._compile import _Scripted

#: Types of arguments that compiled functions take.
_PLAIN = frozenset((Tensor, Parameter, int, float, bool, str, list, tuple, type(None)))


def opened(f):
    """A program of a path or an open file, and the path or the file's bytes."""
    source = f if isinstance(f, (str, os.PathLike)) else f.read()
    return (_Program.from_bytes if isinstance(source, bytes) else _Program.load)(source), source


def read_extra(source, files):
    """Contents of files beside a program, ``None`` for those it does not have."""
    return dict(zip(files, _Program.extra_files(source, list(files))))


def extra_of(files):
    """Names and contents of files to write beside a program."""
    return [(name, text.encode() if isinstance(text, str) else bytes(text)) for name, text in (files or {}).items()]


def _untraced():
    """An error inside a trace, which does not see the ops of programs."""
    if any(isinstance(mode, _trace.Tracer) for mode in _modes.stack):
        raise NotImplementedError("a trace does not see the ops of a traced or loaded module inside the model; trace the original module")


class ProgramModule(Module):
    """A module whose ``forward`` is a program. Parameters and buffers are the program's weights."""

    def __init__(self, program):
        super().__init__()
        object.__setattr__(self, "_program", program)
        self._adopt()

    def _adopt(self, change=None):
        """Makes the weights parameters and buffers of this module, changed by a function."""
        text, weights = self._program.archive()
        state = self._program.state()
        before = dict(weights)
        for name, tensor in before.items():
            new = tensor if change is None else change(tensor.detach())
            known = self._lookup(name)
            if name in state and tensor.requires_grad:
                shared = known if isinstance(known, Parameter) else tensor
                weights[name] = shared if change is None and isinstance(shared, Parameter) else Parameter(new.detach())
            elif new is not tensor:
                weights[name] = new
        if any(weights[name] is not tensor for name, tensor in before.items()):
            program = _Program.parse(text, weights)
            # Only a frozen program records its calls.
            object.__setattr__(self, "_program", program.freeze() if self.__dict__.get("_is_frozen") else program)
        for name, tensor in weights.items():
            if name in state:
                self._register(name, tensor)

    def _lookup(self, path):
        module = self
        *parents, name = path.split(".")
        for parent in parents:
            module = module._modules.get(parent)
            if module is None:
                return None
        return module._parameters.get(name, module._buffers.get(name))

    def _register(self, path, tensor):
        module = self
        *parents, name = path.split(".")
        for parent in parents:
            if parent not in module._modules:
                module._modules[parent] = Module()
            module = module._modules[parent]
        (module._parameters if isinstance(tensor, Parameter) else module._buffers)[name] = tensor

    def _apply(self, fn, recurse=True):
        self._adopt(fn)
        return self

    def train(self, mode=True):
        """Sets the mode of the program's modules; a traced program has none."""
        super().train(mode)
        self._program.train(mode)
        return self

    def forward(self, *args, **kwargs):
        _untraced()
        return self._program.call("forward", self._leaves(args), kwargs)

    def _leaves(self, args):
        return args

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            program = self.__dict__.get("_program")
            if program is not None and not name.startswith("__"):
                if name in program.methods():
                    return lambda *args, **kwargs: program.call(name, args, kwargs)
                found = program.field(name)
                if found is not None:
                    return found
            raise

    @property
    def code(self):
        """The program's text."""
        return self._program.text()

    graph = code

    def save(self, f, _extra_files=None):
        """Writes a ``.rlm`` file: the program as text, the weights as safetensors."""
        self._program.save(f, extra_of(_extra_files))


class TracedFunction:
    """A traced function."""

    def __init__(self, program, name):
        self._program, self.__name__ = program, name

    def __call__(self, *args, **kwargs):
        _untraced()
        return self._program.call("forward", args, kwargs)

    @property
    def code(self):
        """The program's text."""
        return self._program.text()

    graph = code

    def save(self, f, _extra_files=None):
        """Writes a ``.rlm`` file."""
        self._program.save(f, extra_of(_extra_files))


class ScriptedFunction(_Scripted):
    """A compiled function. Inside a function mode or autocast the Python function runs, so that they see its ops."""

    def __init__(self, program, function):
        functools.update_wrapper(self, function)
        self._program = program

    def __call__(self, *args, **kwargs):
        if _modes.stack or is_autocast_enabled() or not all(type(a) in _PLAIN for a in (*args, *kwargs.values())):
            return self.__wrapped__(*args, **kwargs)
        return self._program.call("forward", args, kwargs)

    @property
    def code(self):
        """The program's text."""
        return self._program.text()

    graph = code

    def save(self, f, _extra_files=None):
        """Writes a ``.rlm`` file."""
        self._program.save(f, extra_of(_extra_files))


def trace(func, example_inputs, check_trace=True, check_inputs=None, check_tolerance=1e-5, example_kwarg_inputs=None):
    """Runs a function or module on example inputs and records its ops."""
    import rushlight as torch

    from ..export import _parameter_names, _same, _weights

    if example_inputs is None:
        example_inputs = ()
    if isinstance(example_inputs, Tensor):
        example_inputs = (example_inputs,)
    args, kwargs = tuple(example_inputs), dict(example_kwarg_inputs or {})
    is_module = isinstance(func, Module)
    names = _parameter_names(func.forward if is_module else func, len(args))
    text, weights, _, outputs = _trace.trace(func, args, kwargs, _weights(func) if is_module else {}, names, None)
    program = _Program.from_text(text, weights)
    if check_trace and not (is_module and func.training):
        with torch.no_grad():
            for inputs in [args, *(tuple(i) if isinstance(i, (list, tuple)) else (i,) for i in check_inputs or ())]:
                leaves = tuple(leaf for leaf in torch.utils._pytree.tree_leaves((inputs, kwargs if inputs is args else {})) if isinstance(leaf, Tensor))
                wanted = outputs if inputs is args else func(*inputs)
                _same(program.call("forward", leaves, {}), wanted, "on the inputs of the check")
    if not is_module:
        return TracedFunction(program, getattr(func, "__name__", "forward"))
    made = ProgramModule(program)
    made.training = func.training
    return made
