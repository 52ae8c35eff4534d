"""``torch._VF``: the compiled functions of ``torch``, also where a Python function of the same name uses them."""

from . import _C


def __getattr__(name):
    return getattr(_C._torch, name)


def __dir__():
    return dir(_C._torch)
