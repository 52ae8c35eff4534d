"""``torch._C._functorch``: what libraries ask about tensors inside of ``vmap``."""

from ._batch import Batched, levels


def is_batchedtensor(tensor):
    """Whether a tensor is one element of a batch of ``vmap``."""
    return isinstance(tensor, Batched)


is_functorch_wrapped_tensor = is_batchedtensor


def is_gradtrackingtensor(tensor):
    """Whether a transform of derivatives wraps a tensor: none does."""
    return False


is_functionaltensor = is_legacy_batchedtensor = is_gradtrackingtensor


def maybe_get_bdim(tensor):
    """The dimension of the batch in the value of a tensor; -1 if it has none."""
    return 0 if is_batchedtensor(tensor) else -1


def maybe_get_level(tensor):
    """The number of the ``vmap`` that a tensor belongs to; -1 outside."""
    return tensor._level.number if is_batchedtensor(tensor) else -1


def maybe_current_level():
    """The number of the innermost ``vmap``; None outside."""
    stack = levels()
    return stack[-1].number if stack else None


def get_unwrapped(tensor):
    """The value with all elements of the batch."""
    return tensor._value if is_batchedtensor(tensor) else tensor


def _level(number):
    found = next((level for level in levels() if level.number == number), None)
    if found is None:
        raise RuntimeError(f"vmap: there is no level {number} here; the levels are {[level.number for level in levels()]}")
    return found


def _add_batch_dim(tensor, dim, level):
    """One element of the batch that a dimension of a tensor is."""
    return Batched(tensor.movedim(dim, 0), _level(level))


def _remove_batch_dim(tensor, level, batch_size, out_dim):
    """All elements of the batch, along a dimension of the result."""
    if is_batchedtensor(tensor) and tensor._level.number == level:
        return tensor._value.movedim(0, out_dim)
    return tensor.unsqueeze(out_dim).expand(*tensor.shape[:out_dim], batch_size, *tensor.shape[out_dim:])


def reshape_dim_into(src, dst, x):
    """A dimension merged into another, in front of its elements."""
    src, dst = src % x.dim(), dst % (x.dim() - 1)
    shape = [n for d, n in enumerate(x.shape) if d != src]
    shape[dst] *= x.shape[src]
    return x.movedim(src, dst).reshape(shape)


def reshape_dim_outof(src, size1, x):
    """A dimension as two, of which the first has a size."""
    src = src % x.dim()
    return x.reshape(*x.shape[:src], size1, x.shape[src] // size1, *x.shape[src + 1:])


_fallback = [True]


def _is_vmap_fallback_enabled():
    """Rules of ``vmap`` cover its ops, so the setting changes nothing: PyTorch's own tests turn it on and off."""
    return _fallback[0]


def _set_vmap_fallback_enabled(enabled):
    _fallback[0] = bool(enabled)
