"""``torch.mps``: the machine's accelerators."""

from . import _accelerator

globals().update(_accelerator.functions("mps"))


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
