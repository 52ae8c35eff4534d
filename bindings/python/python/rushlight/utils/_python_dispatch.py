"""``TorchDispatchMode``: a context that intercepts every function of ``torch`` as an op of ``torch.ops.aten``."""

from .. import _C
from .._dispatch import _METADATA, as_aten, name_of
from .._dispatch_backward import below_autograd
from ..overrides import TorchFunctionMode

#: Methods that are no ops: they look at a tensor, or set something about it.
_NO_OPS = _METADATA | frozenset(
    "backward data_ptr dim get_device is_pinned is_shared len hash ndimension nelement register_hook repr format requires_grad_ retain_grad storage_offset "
    "untyped_storage register_post_accumulate_grad_hook type".split()
)

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass"]


class TorchDispatchMode(TorchFunctionMode):
    """A mode that sees the ops of ``aten``: of forward passes, and of backward passes that run while it is active through what it saw."""

    _handles_ops = True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{type(self).__name__}: define __torch_dispatch__(self, func, types, args=(), kwargs=None)")

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") == "__get__" and getattr(func.__self__, "__name__", "") not in ("T", "mT") or name_of(func) in _NO_OPS:
            return func(*args, **(kwargs or {}))
        return as_aten(func, args, kwargs or {}, lambda op, args, kwargs: self._handle(op, types, args, kwargs))

    def _handle(self, op, types, args, kwargs):
        return below_autograd(op, args, kwargs, lambda op, args, kwargs: self.__torch_dispatch__(op, types, args, kwargs))


def is_traceable_wrapper_subclass(t):
    """Whether a tensor's class wraps other tensors and can be flattened."""
    return isinstance(t, _C.Tensor) and type(t) is not _C.Tensor and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t):
    """The same of a class."""
    return issubclass(t, _C.Tensor) and t is not _C.Tensor and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def _get_current_dispatch_mode():
    from ..overrides import _get_current_function_mode

    found = _get_current_function_mode()
    return found if isinstance(found, TorchDispatchMode) else None


def return_and_correct_aliasing(func, args, kwargs, out):
    """Returns the result unchanged: views already know their base."""
    return out
