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
        from . import graphs

        return getattr(graphs, name)
    if name == "ExternalStream":
        raise AttributeError("rushlight has no 'cuda.ExternalStream': work goes to streams of its own; share tensors by DLPack, which orders the streams")
    return _functions._missing(__name__, name)
