"""``torch._inductor``: settings of a compiler that is not needed. Models run without it (``torch.compile``)."""

from .compiler import _Config

config = _Config("inductor")


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
