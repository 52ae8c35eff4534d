"""``torch._functorch.vmap``: parts of ``vmap`` that libraries import to batch structures of their own."""

from .. import _C
from .._batch import Batched, Level
from .._functorch_c import _add_batch_dim, _remove_batch_dim  # noqa: F401
from ..func import _matched, _rebuilt, vmap
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


def restore_vmap(func, in_dims, batch_size, randomness):
    """``vmap`` without out_dims: it returns the results and where their batch is, None for results that are the same for all."""

    def inner(*args, **kwargs):
        pairs = _matched(in_dims, args, "restore_vmap: in_dims")
        level = Level(batch_size, randomness)
        given = [(leaf if dim is None else Batched(leaf.movedim(dim, 0), level), leaf, dim) for leaf, dim in pairs]
        with level:
            result = func(*_rebuilt(args, (batched for batched, *_ in given)), **kwargs)
        # Arguments that come back have their batch where it was.
        same = {id(batched): (leaf, dim) for batched, leaf, dim in given}
        found = []
        for leaf, _ in _matched(None, result, "restore_vmap: results"):
            found.append(same.get(id(leaf), (leaf._value, 0)) if level.has(leaf) else (leaf, None))
        return _rebuilt(result, iter([value for value, _ in found])), _rebuilt(result, iter([dim for _, dim in found]))

    return inner
