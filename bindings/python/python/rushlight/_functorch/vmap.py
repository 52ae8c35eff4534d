"""``torch._functorch.vmap``: parts of ``vmap`` that libraries import to batch structures of their own."""

from .. import _C
from .._functorch_c import _add_batch_dim, _remove_batch_dim  # noqa: F401
from ..func import vmap  # noqa: F401
from ..utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten  # noqa: F401

Tensor = _C.Tensor


def _get_name(func):
    """The name of a function for messages."""
    return getattr(func, "__name__", None) or repr(func)


def _maybe_remove_batch_dim(name, batched_output, vmap_level, batch_size, out_dim):
    """All elements of a result's batch, along ``out_dim``; None gives a result that is the same for all."""
    if out_dim is None:
        return batched_output
    if not isinstance(batched_output, Tensor):
        raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}")
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)
