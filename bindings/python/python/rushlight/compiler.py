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
