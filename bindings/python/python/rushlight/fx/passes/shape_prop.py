"""Shapes of all values of a graph."""

from collections import namedtuple

from ... import Tensor
from ..interpreter import Interpreter
from ..node import map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]

TensorMetadata = namedtuple("TensorMetadata", "shape dtype requires_grad stride memory_format is_quantized qparams")


def _extract_tensor_metadata(result, include_contiguity=True):
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), None, False, {})


class ShapeProp(Interpreter):
    """Runs a graph and stores each value's shape and dtype in ``node.meta['tensor_meta']``."""

    def run_node(self, n):
        result = super().run_node(n)
        found = []
        meta = map_aggregate(result, lambda v: _note(v, found))
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args):
        return super().run(*args)


def _note(value, found):
    if not isinstance(value, Tensor):
        return value
    found.append(value)
    return _extract_tensor_metadata(value)
