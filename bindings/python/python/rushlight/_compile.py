"""``torch.compile``: functions and modules that are recorded once for each kind of arguments and then run as programs."""

import functools
import types

from . import _C
from ._nested import flatten, unflatten

Tensor = _C.Tensor

#: Compiled functions, for ``reset``; by identity, as modules compare so.
_made = []
_recording = [0]
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_BACKENDS = ("inductor", "eager", "aot_eager", "cudagraphs")


#: What a result may hold besides tensors.
_HELD = (*_SIMPLE, _C.dtype, _C.device)


class Unholdable(Exception):
    """The function cannot be held as programs: its result is made of more than tensors, or it needs hooks."""


def _unholdable(kind):
    return Unholdable(f"it returns a {kind.__name__}")


def is_recording():
    """Whether a function is being recorded."""
    return _recording[0] > 0


def _guard(value, depth=0):
    """What a recording depends on in a value that the function can see, in a comparable form."""
    from .nn import Module

    if isinstance(value, _SIMPLE):
        return type(value), value
    if isinstance(value, Tensor):
        return id(value), value.requires_grad
    if isinstance(value, Module):
        found = []
        for module in value.modules():
            state = module.__dict__
            found.append(id(module))
            found.extend((key, type(part), part) for key, part in state.items() if isinstance(part, _SIMPLE))
            for hooks in ("_forward_hooks", "_forward_pre_hooks"):
                if state.get(hooks):
                    found.append((hooks, tuple(state[hooks])))
            for parts in (state["_parameters"], state["_buffers"]):
                found.extend((id(t), t.requires_grad) for t in parts.values() if t is not None)
        return tuple(found)
    if type(value) in (tuple, list) and len(value) <= 64 and depth < 3:
        return type(value), tuple(_guard(part, depth + 1) for part in value)
    if isinstance(value, types.FunctionType) and depth < 2:
        return _guards(value, depth + 1)
    return id(value)


def _guards(function, depth=0):
    """The values that a function can see besides its arguments: its object, closure, defaults, globals by name."""
    from .nn import Module

    if isinstance(function, Module):
        return _guard(function, depth)
    found = []
    owner = getattr(function, "__self__", None)
    if owner is not None:
        found.append(_guard(owner, depth))
    code = getattr(function, "__code__", None)
    if code is None:
        return tuple(found)
    for cell in getattr(function, "__closure__", None) or ():
        try:
            found.append(_guard(cell.cell_contents, depth))
        except ValueError:
            found.append(None)
    names = function.__globals__
    found.extend((name, _guard(names[name], depth)) for name in code.co_names if name in names and not isinstance(names[name], types.ModuleType))
    return tuple(found)


class CompiledFunction:
    """A function with its recordings; ``torch.compile`` makes it."""

    def __init__(self, function, fullgraph=False):
        functools.update_wrapper(self, function, updated=())
        from ._dynamo import config

        limit = config.__dict__.get("recompile_limit", 8)
        self._function, self._fullgraph = function, fullgraph
        self._torchdynamo_orig_callable = function
        self._compiled = _C._Compile(limit)
        _made.append(self)

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def _run_plain(self, args, kwargs, reason):
        if self._fullgraph:
            from ._dynamo.exc import Unsupported

            raise Unsupported(f"torch.compile(fullgraph=True): {reason}")
        return self._function(*args, **kwargs)

    def __call__(self, *args, **kwargs):
        if is_recording() or _stance[0] == "force_eager" or _C._is_recording():
            return self._function(*args, **kwargs)
        inputs = []
        form = flatten((args, kwargs), inputs)
        kind = form, _guards(self._function), tuple(id(type(t)) for t in inputs)
        try:
            hash(kind)
        except TypeError:
            return self._run_plain(args, kwargs, "an argument that is not a tensor cannot be hashed")
        if any(type(t) is not Tensor and type(t).__torch_function__ is not Tensor.__torch_function__ for t in inputs):
            return self._refuse(kind, inputs, args, kwargs, "an argument is of a class that overrides functions")

        def step(*own):
            args, kwargs = unflatten(form, iter(own))
            tensors = []
            _recording[0] += 1
            try:
                return tensors, flatten(self._function(*args, **kwargs), tensors, _HELD, _unholdable)
            finally:
                _recording[0] -= 1

        try:
            made = self._compiled.run(kind, inputs, step)
        except Unholdable as e:
            # Run again from where it was: the results of this run cannot be used.
            self._compiled.rewind()
            return self._refuse(kind, inputs, args, kwargs, str(e))
        if isinstance(made, str):
            return self._run_plain(args, kwargs, made)
        if self._fullgraph and self._compiled.reasons:
            return self._run_plain(args, kwargs, self._compiled.reasons[-1])
        tensors, result = made
        return unflatten(result, iter(tensors))

    def _refuse(self, kind, inputs, args, kwargs, reason):
        """Runs the function, now and at later calls of this kind."""
        self._compiled.refuse(kind, inputs, reason)
        return self._run_plain(args, kwargs, reason)

    @property
    def recordings(self):
        """Number of recordings."""
        return self._compiled.recordings

    @property
    def reasons(self):
        """Why calls of some kinds run the function instead of a recording."""
        return self._compiled.reasons

    @property
    def programs(self):
        """The recorded programs as text, forward and backward."""
        return self._compiled.programs

    def reset(self):
        """Forgets all recordings."""
        self._compiled.clear()


_stance = ["default"]


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    """A function or module that is recorded once for each kind of arguments and then runs as a program.

    The first call with arguments of a kind (shapes, strides, dtypes, devices, values of other arguments; grad mode and autocast; numbers, strings and modules
    that the function sees in its closure, its globals or its module) runs the function and records the engine's calls and those of the backward pass. Passes
    remove what is not needed and fuse pointwise calls. Later calls run that program. Nothing is compiled that anyone waits for.

    >>> import rushlight as torch
    >>> @torch.compile
    ... def gate(x, y):
    ...     return x * torch.sigmoid(y) + 1
    >>> gate(torch.ones(2), torch.zeros(2))
    tensor([1.5000, 1.5000])

    What cannot be held as a program runs as it is: functions that read values (``item()``, printing), return memory of their arguments or other objects than
    tensors in containers. ``torch._dynamo.explain`` says why; with ``fullgraph=True`` it is an error. ``dynamic`` and ``mode`` change nothing: each shape has a
    recording of its own.
    """
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if not callable(model):
        raise RuntimeError("torch.compile: expected a function or a module")
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if callable(backend) or backend not in _BACKENDS:
        raise NotImplementedError(f"torch.compile: backend {backend!r} is not supported; there is {', '.join(_BACKENDS)}")
    if disable or backend in ("eager", "aot_eager") or isinstance(model, types.BuiltinFunctionType):
        return model
    if isinstance(model, type):
        return model
    from .nn import Module

    if isinstance(model, Module):
        from ._dynamo.eval_frame import OptimizedModule

        return OptimizedModule(model, CompiledFunction(model, fullgraph))
    return CompiledFunction(model, fullgraph)


def reset():
    """Forgets all recordings of all compiled functions."""
    for function in _made:
        function.reset()


class Explanation:
    """What compiling a function gave: ``torch._dynamo.explain``."""

    def __init__(self, function):
        self.graphs = function.programs
        self.graph_count = function.recordings
        self.break_reasons = function.reasons
        self.graph_break_count = len(self.break_reasons)
        self.op_count = sum(len(text.splitlines()) - 1 for text in self.graphs)

    def __str__(self):
        lines = [f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}", f"Op Count: {self.op_count}", "Break Reasons:"]
        return "\n".join(lines + [f"  Break Reason {i + 1}: {reason}" for i, reason in enumerate(self.break_reasons)]) + "\n"


def explain(function, *extra_args, **extra_kwargs):
    """Calls a function of arguments and says what compiling it gives, and what cannot be compiled."""

    def inner(*args, **kwargs):
        compiled = CompiledFunction(getattr(function, "_torchdynamo_orig_callable", function))
        compiled(*args, **kwargs)
        _made.remove(compiled)
        return Explanation(compiled)

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


def disable(fn=None, recursive=True, *, reason=None, wrapping=True):
    """A function that runs as it is: what calls it cannot be held as a program either."""
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    fn = getattr(fn, "_torchdynamo_orig_callable", fn)
    if not isinstance(fn, types.FunctionType):
        return fn

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        if is_recording():
            _C._compile_break(f"{fn.__name__} is marked by torch.compiler.disable" + (f": {reason}" if reason else ""))
        return fn(*args, **kwargs)

    return wrapper
