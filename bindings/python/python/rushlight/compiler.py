"""``torch.compiler``: models run as they are."""

from ._functions import compile  # noqa: F401


def disable(fn=None, recursive=True, **kwargs):
    """The function as it is."""
    return (lambda function: function) if fn is None else fn


def is_compiling():
    """Whether code is being compiled: it never is."""
    return False


def is_dynamo_compiling():
    """Whether code is being compiled: it never is."""
    return False


def reset():
    """Nothing was compiled."""


def cudagraph_mark_step_begin():
    """Nothing is captured."""


allow_in_graph = assume_constant_result = disable


class _Config:
    """Settings of a compiler: kept as they are set, and without effect, as nothing is compiled."""

    def __init__(self, name):
        self.__dict__["_name"] = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        # Parts have settings of their own: `config.triton.cudagraphs = True`.
        made = self.__dict__[name] = _Config(f"{self._name}.{name}")
        return made

    def __bool__(self):
        return False

    def patch(self, *args, **kwargs):
        """A context, or a decorator, with other settings."""
        import contextlib

        return contextlib.nullcontext()
