"""Splits batches over devices and joins the results."""

from ... import _C

__all__ = ["gather", "is_namedtuple", "scatter", "scatter_kwargs"]


def is_namedtuple(obj):
    """Whether an object is a named tuple."""
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def scatter(inputs, target_gpus, dim=0):
    """For each device a piece of each tensor; other values are repeated."""
    count = len(target_gpus)

    def pieces(value):
        if isinstance(value, _C.Tensor):
            return [piece.to(device) for piece, device in zip(value.chunk(count, dim), target_gpus)]
        if isinstance(value, (list, tuple)) and value:
            made = zip(*map(pieces, value))
            return [type(value)(*p) if is_namedtuple(value) else type(value)(p) for p in made]
        if isinstance(value, dict) and value:
            return [type(value)(zip(value, p)) for p in zip(*map(pieces, value.values()))]
        return [value] * count

    return pieces(inputs)


def scatter_kwargs(inputs, kwargs, target_gpus, dim=0):
    """``scatter`` of positional and named arguments."""
    pieces = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(pieces), len(named))
    return tuple(pieces + [()] * (count - len(pieces))), tuple(named + [{}] * (count - len(named)))


def gather(outputs, target_device, dim=0):
    """Joins pieces of tensors on one device."""
    first = outputs[0]
    if isinstance(first, _C.Tensor):
        if first.dim() == 0:
            outputs, dim = [o.reshape(1) for o in outputs], 0
        return _C._torch.cat([o.to(target_device) for o in outputs], dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((key, gather([o[key] for o in outputs], target_device, dim)) for key in first)
    made = [gather(group, target_device, dim) for group in zip(*outputs)]
    return type(first)(*made) if is_namedtuple(first) else type(first)(made)
