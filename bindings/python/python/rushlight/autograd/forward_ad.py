"""Forward mode: ``torch.autograd.forward_ad``.

A dual tensor has a tangent, and so has the result of every function of duals, with or without a tape (``rushlight._tangents``).
"""

from typing import NamedTuple, Optional

from .. import _C
from .._tangents import Level, switch
from ..overrides import _modes

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

Tensor = _C.Tensor

#: The levels that were entered.
_levels = []


class UnpackedDualTensor(NamedTuple):
    """A tensor and its tangent, which is None for tensors that no dual has a part in."""

    primal: Tensor
    tangent: Optional[Tensor]


def enter_dual_level():
    """Enters a level and returns its number."""
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _levels.append(Level())
    _levels[-1].__enter__()
    return len(_levels) - 1


def exit_dual_level(*, level=None):
    """Leaves a level: its duals have no tangents any more."""
    level = len(_levels) - 1 if level is None else level
    if not _levels or level != len(_levels) - 1:
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not supported.")
    last = _levels.pop()
    _modes.stack = [mode for mode in _modes.stack if mode is not last]
    _C._set_function_modes(len(_modes.stack))


class dual_level:
    """A level as a context."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *exception):
        exit_dual_level()


class _set_fwd_grad_enabled:
    """Switches forward mode, at once and as a context."""

    def __init__(self, mode):
        self._before, switch.enabled = switch.enabled, mode

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        switch.enabled = self._before


def _is_fwd_grad_enabled():
    """Whether duals are made and carry tangents."""
    return switch.enabled


def _current(level, call):
    level = len(_levels) - 1 if level is None else level
    if level < 0 or level >= len(_levels):
        raise RuntimeError(f"Trying to {call} for forward AD but no level exists, make sure to enter_dual_level() first.")
    return _levels[level]


def make_dual(tensor, tangent, *, level=None):
    """A view of a tensor with a tangent."""
    found = _current(level, "create a dual Tensor")
    for what, value in (("primal", tensor), ("tangent", tangent)):
        if not (value.is_floating_point() or value.is_complex()):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {value.dtype}")
    if tensor.shape != tangent.shape:
        raise RuntimeError(f"Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. Tensor is of size "
                           f"{list(tensor.shape)} while the given forward gradient is of size {list(tangent.shape)}.")
    if tensor.dtype != tangent.dtype:
        raise RuntimeError(f"Expected tangent to have the dtype of the tensor, {tensor.dtype}, but got {tangent.dtype}")
    if not switch.enabled:
        return tensor
    return found.dual(tensor, tangent)


def unpack_dual(tensor, *, level=None):
    """The value of a tensor, and its tangent."""
    if not _levels:
        return UnpackedDualTensor(tensor, None)
    found = _current(level, "unpack a dual Tensor")
    tangent = found.unpack(tensor)
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(found.primal(tensor), tangent)


def __getattr__(name):
    if name == "_current_level":
        # The number of the innermost level, -1 outside of all.
        return len(_levels) - 1
    raise AttributeError(f"module 'torch.autograd.forward_ad' has no attribute '{name}'")
