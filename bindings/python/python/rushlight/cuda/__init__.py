"""``torch.cuda``: what there is of accelerators under this name."""

from .. import _C, _accelerator
from . import amp  # noqa: F401

globals().update(_accelerator.functions("cuda"))

default_generators = ()
OutOfMemoryError = _C.OutOfMemoryError


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
    from .. import _functions

    if name.endswith("Tensor") and name in _functions.__all__:
        return _functions.typed(getattr(_functions, name).dtype, "cuda")
    if name in ("CUDAGraph", "graph", "make_graphed_callables", "graph_pool_handle"):
        raise AttributeError(f"rushlight has no 'cuda.{name}': steps are not captured as graphs; run them as they are")
    return _functions._missing(__name__, name)
