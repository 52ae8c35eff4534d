"""``torch._dynamo``: settings of a compiler that is not needed. Models run without it (``torch.compile``)."""

from ..compiler import _Config, allow_in_graph, assume_constant_result, disable, forbid_in_graph, is_compiling, reset  # noqa: F401
from . import exc  # noqa: F401
from .eval_frame import OptimizedModule  # noqa: F401

config = _Config("dynamo")


def _mark(t, index=None, **kwargs):
    """Does nothing: sizes and addresses may always change between calls."""


mark_dynamic = maybe_mark_dynamic = mark_static = mark_static_address = mark_unbacked = _mark


def optimize(*args, **kwargs):
    """A decorator that returns functions unchanged."""
    return lambda function: function


def graph_break(msg=""):
    """Does nothing: there are no graphs."""


def is_dynamo_supported():
    """Whether there is a compiler: always False."""
    return False


def list_backends(exclude_tags=()):
    """Names of compilers: always empty."""
    return []


def __getattr__(name):
    if name == "utils":
        import importlib

        return importlib.import_module(".utils", __name__)
    from .._functions import _missing

    return _missing(__name__, name)
