"""``torch.xpu``: what there is of accelerators under this name."""

from . import _accelerator

globals().update(_accelerator.functions("xpu"))


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
