"""``torch.cond``: one of two functions, by a predicate."""

from .. import _C
from ..utils import _pytree


def cond(pred, true_fn, false_fn, operands=()):
    """``true_fn(*operands)`` where ``pred`` holds, else ``false_fn(*operands)``. Only one of the two runs."""
    if isinstance(pred, (bool, int, float)):
        return (true_fn if pred else false_fn)(*operands)
    if not isinstance(pred, _C.Tensor):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or not all(isinstance(leaf, _C.Tensor) for leaf in _pytree.tree_leaves(operands)):
        raise RuntimeError(f"Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but got {operands}.")
    return (true_fn if pred else false_fn)(*operands)
