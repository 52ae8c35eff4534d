"""``torch.cuda``: what there is of accelerators under this name."""

from .. import _accelerator
from . import amp  # noqa: F401

globals().update(_accelerator.functions("cuda"))

default_generators = ()


class OutOfMemoryError(RuntimeError):
    """A device that has no more memory."""


class _Nvtx:
    """Marks for a profiler that is not there."""

    def range_push(self, message):
        return 0

    def range_pop(self):
        return 0

    def mark(self, message):
        pass


nvtx = _Nvtx()


def __getattr__(name):
    if name == "FloatTensor":
        from .._functions import FloatTensor

        return FloatTensor
    from .._functions import _missing

    return _missing(__name__, name)
