"""What rows of the table of sharding rules are made of: arguments of ops, and functions that return what runs an op."""

import string

from ... import _C
from ._api import DTensor
from ._ops import _flat, _inputs, _map, run
from .placement_types import Replicate

Tensor = _C.Tensor
LETTERS = string.ascii_lowercase


# Arguments.


def argument(args, kwargs, at, name, default=None):
    if len(args) > at:
        return args[at]
    return kwargs["axis"] if name == "dim" and "axis" in kwargs else kwargs.get(name, default)


def dim_of(dim, count, name):
    """A dimension counted from the start."""
    if not -max(count, 1) <= dim < max(count, 1):
        raise IndexError(f"{name}: Dimension out of range (expected to be in range of [{-max(count, 1)}, {max(count, 1) - 1}], but got {dim})")
    return dim % max(count, 1)


def dims_of(tensor, given, name):
    """Dimensions counted from the start; all if none are given."""
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return list(range(tensor.dim()))
    return [dim_of(d, tensor.dim(), name) for d in (given if isinstance(given, (list, tuple)) else (given,))]


def listed(args, kwargs, name):
    """Sizes given one by one or as one sequence."""
    given = args or (kwargs[name],)
    return [int(n) for n in (given if len(given) > 1 or isinstance(given[0], int) else given[0])]


def letters_of(tensor, whole=()):
    """A letter for each dimension, ``_`` for some."""
    return "".join("_" if d in whole else LETTERS[d] for d in range(tensor.dim()))


# Rows: functions that return what runs an op.


def fixed(kind, word=""):
    """A rule that needs no argument of the op."""
    return lambda func, name, args, kwargs: run(func, name, (kind, word, [], False), args, kwargs)


def labelled(text_of):
    """A rule of labels: ``text_of(name, args, kwargs)`` returns the distributed inputs in order, and the text."""

    def row(func, name, args, kwargs):
        inputs, text = text_of(name, args, kwargs)
        return run(func, name, ("labels", text, [], False), args, kwargs, inputs)

    return row


def along(at=1, key="dim", default=-1, word="", lost=False):
    """Computes along some dimensions, which must be whole, and may drop them (``lost``). Results may be several."""

    def text(name, args, kwargs):
        t = args[0]
        given = argument(args, kwargs, at, key, default)
        whole = dims_of(t, given, name) if t.dim() else []
        drops = lost is True or (lost and not argument(args, kwargs, lost, "keepdim", False))
        letters = letters_of(t, whole)
        return [t], f"{word}{letters}->{letters.replace('_', '') if drops else letters}"

    return labelled(text)


def ends(count, word="", filled=False):
    """Computes along the last dimensions, which must be whole."""

    def text(name, args, kwargs):
        letters = letters_of(args[0], range(max(args[0].dim() - count, 0), args[0].dim()))
        letters = letters.upper() if filled else letters
        return [args[0]], f"{word}{letters}->{letters}"

    return labelled(text)


def gathered(func, name, args, kwargs):
    """An op of whole tensors, on every rank. Results are replicated."""
    inputs = _inputs(name, _flat(args, kwargs))
    mesh = inputs[0]._mesh
    everywhere = (Replicate(),) * mesh.ndim
    swap = lambda t: t.redistribute(placements=everywhere)._local_tensor if isinstance(t, DTensor) else t
    result = func(*(_map(a, swap) for a in args), **{k: _map(v, swap) for k, v in kwargs.items()})
    wrap = lambda t: DTensor._of(t, mesh, everywhere, t.shape) if isinstance(t, Tensor) else t
    return type(result)([wrap(t) for t in result]) if isinstance(result, (list, tuple)) else wrap(result)


def refused(instead):
    """An op that no placement can run."""

    def row(func, name, args, kwargs):
        raise NotImplementedError(f"{name} of a DTensor: {instead}")

    return row


def reduction(word, at=1, keepdim=2):
    """A reduction; the places of ``dim`` and ``keepdim`` among the arguments."""

    def row(func, name, args, kwargs):
        t, given = args[0], argument(args, kwargs, at, "dim")
        how = "other" if word in ("max", "min") and t.requires_grad else word
        # var(True) names no dimension.
        dims = dims_of(t, None if isinstance(given, bool) else given, name)
        return run(func, name, ("reduce", how, dims, bool(argument(args, kwargs, keepdim, "keepdim", False))), args, kwargs)

    return row


def extremum(word):
    """``max`` and ``min``: of all, of two tensors, along a dimension."""
    both, one = fixed("pointwise"), along(lost=2)

    def row(func, name, args, kwargs):
        other = argument(args, kwargs, 1, "other")
        if isinstance(other, Tensor):
            return both(func, name, args, kwargs)
        if len(args) == 1 and "dim" not in kwargs:
            return run(func, name, ("reduce", "other" if args[0].requires_grad else word, list(range(args[0].dim())), False), args, kwargs)
        return one(func, name, args, kwargs)

    return row
