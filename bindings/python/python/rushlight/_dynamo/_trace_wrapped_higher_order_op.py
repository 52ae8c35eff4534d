"""A context that traces indexing by tensors as indexing. It changes nothing here."""

from ..overrides import TorchFunctionMode


class TransformGetItemToIndex(TorchFunctionMode):
    """Changes nothing: an index tensor of one element picks an element in any case."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
