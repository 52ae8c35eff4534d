"""``torch.compiler``: settings of ``torch.compile``, which records functions and runs them as programs."""

import contextlib
import types

from . import _compile
from ._compile import compile, disable, reset  # noqa: F401


def is_compiling():
    """Whether a compiled function is being recorded."""
    return _compile.is_recording()


is_dynamo_compiling = is_compiling


def cudagraph_mark_step_begin():
    """Marks the begin of a step. Results of compiled functions are tensors of their own, so it has nothing to do."""


def allow_in_graph(fn=None, *args, **kwargs):
    """Returns the function unchanged: all ops can be recorded."""
    return (lambda function: function) if fn is None else fn


assume_constant_result = forbid_in_graph = substitute_in_graph = allow_in_graph


def is_exporting():
    """Whether code is being exported: always False."""
    return False


def keep_tensor_guards_unsafe(guard_entries, keep_parameters=False):
    """Settings of compiled code, without effect."""
    return []


skip_guard_on_inbuilt_nn_modules_unsafe = keep_tensor_guards_unsafe


def list_backends(exclude_tags=()):
    """Names of backends."""
    return ["cudagraphs", "inductor"]


class set_stance:
    """Behaviour of compiled code, as a call, a context or a decorator: ``"default"`` or ``"force_eager"``."""

    def __init__(self, stance="default", *, skip_guard_eval_unsafe=False, force_backend=None):
        if stance not in ("default", "force_eager"):
            raise NotImplementedError(f"torch.compiler.set_stance: {stance!r} is not supported; there is 'default' and 'force_eager'")
        self._stance, self._before = stance, _compile._stance[0]
        _compile._stance[0] = stance

    def __call__(self, function):
        import functools

        _compile._stance[0] = self._before

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            with set_stance(self._stance):
                return function(*args, **kwargs)

        return wrapper

    def __enter__(self):
        return None

    def __exit__(self, *exception):
        _compile._stance[0] = self._before


def nested_compile_region(fn=None, *args, **kwargs):
    """Returns the function unchanged."""
    return (lambda function: function) if fn is None else fn


class _Unpatched(contextlib.ContextDecorator):
    """A context, or a decorator, without effect."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False


class _Config(types.ModuleType):
    """Settings of a compiler: stored, without effect."""

    def __init__(self, name):
        super().__init__(name)
        self.__dict__["_name"] = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        # Parts have their own settings: `config.triton.cudagraphs = True`.
        made = self.__dict__[name] = _Config(f"{self._name}.{name}")
        return made

    def __bool__(self):
        return False

    def patch(self, *args, **kwargs):
        """A context, or a decorator, with other settings."""
        return _Unpatched()
