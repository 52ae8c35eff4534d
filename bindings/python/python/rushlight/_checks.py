"""Checks of conditions that raise a given class of error: ``torch._check`` and its relatives."""

from . import _C

__all__ = [
    "_check", "_check_index", "_check_is_size", "_check_not_implemented", "_check_tensor_all", "_check_tensor_all_with", "_check_type", "_check_value",
    "_check_with",
]


def _check_with(error_type, cond, message):
    """Raises ``error_type(message())`` unless ``cond``. ``message`` is a function, or None."""
    if not isinstance(cond, (bool, _C.Tensor)):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        raise error_type("Expected cond to be True, but got False. (Could this error message be improved? If so, please report it.)")
    if not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(str(message()))


def written(made, out):
    """A result, or ``out`` with the result in it: a tensor whose dtype can hold the result's kind of numbers."""
    if out is None:
        return made
    if not _C.can_cast(made.dtype, out.dtype):
        raise RuntimeError(f"result type {str(made.dtype)[6:]} can't be cast to the desired output type {str(out.dtype)[6:]}")
    return out.resize_(made.shape).copy_(made)


def _raising(name, error_type):
    def check(cond, message=None):
        _check_with(error_type, cond, message)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"Raises ``{error_type.__name__}`` unless ``cond``."
    return check


_check = _raising("_check", RuntimeError)
_check_index = _raising("_check_index", IndexError)
_check_value = _raising("_check_value", ValueError)
_check_type = _raising("_check_type", TypeError)
_check_not_implemented = _raising("_check_not_implemented", NotImplementedError)


def _check_is_size(i, message=None, *, max=None):
    """Raises unless ``i`` can be a size, and is at most ``max`` if that is given."""
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all_with(error_type, cond, message=None):
    """``_check_with`` of all elements of a tensor of bools."""
    if not isinstance(cond, _C.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype != _C.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, cond.all().item(), message)


def _check_tensor_all(cond, message=None):
    """Raises ``RuntimeError`` unless all elements of a tensor of bools are True."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _has_compatible_shallow_copy_type(input, from_):
    """Whether ``input.data = from_`` keeps the kind of a tensor: its class and layout."""
    return type(input) is type(from_) and input.layout == from_.layout
