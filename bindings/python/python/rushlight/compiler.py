"""``torch.compiler``: models run without a compiler."""

from ._functions import compile  # noqa: F401


def disable(fn=None, recursive=True, **kwargs):
    """Returns the function unchanged."""
    return (lambda function: function) if fn is None else fn


def is_compiling():
    """Whether code is being compiled: always False."""
    return False


def is_dynamo_compiling():
    """Whether code is being compiled: always False."""
    return False


def reset():
    """Does nothing: nothing was compiled."""


def cudagraph_mark_step_begin():
    """Does nothing: nothing is captured."""


allow_in_graph = assume_constant_result = forbid_in_graph = substitute_in_graph = disable


def is_exporting():
    """Whether code is being exported: always False."""
    return False


def keep_tensor_guards_unsafe(guard_entries, keep_parameters=False):
    """Settings of compiled code, without effect."""
    return []


skip_guard_on_inbuilt_nn_modules_unsafe = keep_tensor_guards_unsafe


def list_backends(exclude_tags=()):
    """Names of compilers: always empty."""
    return []


class set_stance:
    """Behaviour of compiled code, as a call, a context or a decorator. It has no effect."""

    def __init__(self, stance="default", *, skip_guard_eval_unsafe=False, force_backend=None):
        self._stance = stance

    def __call__(self, function):
        return function

    def __enter__(self):
        return None

    def __exit__(self, *exception):
        return None


def nested_compile_region(fn=None, *args, **kwargs):
    """Returns the function unchanged."""
    return (lambda function: function) if fn is None else fn


class _Config:
    """Settings of a compiler: stored, without effect."""

    def __init__(self, name):
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
        import contextlib

        return contextlib.nullcontext()
