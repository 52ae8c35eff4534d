"""``torch._dynamo``: settings of a compiler that is not needed. Models run as they are (``torch.compile``)."""

from .compiler import _Config, allow_in_graph, disable, is_compiling, reset  # noqa: F401

config = _Config("dynamo")


def mark_dynamic(t, index, **kwargs):
    """Sizes may change from call to call anyway."""


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
