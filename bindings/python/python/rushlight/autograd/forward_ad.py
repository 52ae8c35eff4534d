"""Forward mode: ``torch.autograd.forward_ad``, over the tape.

A dual tensor is recorded like any other. ``unpack_dual`` gives the tangent of a result: the gradient by the duals is linear in its weight, and the derivative
of its product with the tangents by that weight is the tangent, exactly. It costs two backward passes; ops under ``no_grad`` have no tangents.
"""

from typing import NamedTuple, Optional

from .. import _C

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

Tensor = _C.Tensor

#: The duals and tangents of each level that was entered.
_levels = []
_enabled = True


class UnpackedDualTensor(NamedTuple):
    """A tensor and its tangent, which is None for tensors that no dual has a part in."""

    primal: Tensor
    tangent: Optional[Tensor]


def enter_dual_level():
    """Enters a level and returns its number."""
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _levels.append([])
    return len(_levels) - 1


def exit_dual_level(*, level=None):
    """Leaves a level: its duals have no tangents any more."""
    level = len(_levels) - 1 if level is None else level
    if not _levels or level != len(_levels) - 1:
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not supported.")
    _levels.pop()


class dual_level:
    """A level as a context. The ops inside are recorded."""

    def __enter__(self):
        self._before = _C._set_grad_enabled(True)
        return enter_dual_level()

    def __exit__(self, *exception):
        exit_dual_level()
        _C._set_grad_enabled(self._before)


class _set_fwd_grad_enabled:
    """Switches forward mode, at once and as a context."""

    def __init__(self, mode):
        global _enabled
        self._before, _enabled = _enabled, mode

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        global _enabled
        _enabled = self._before


def _current(level, call):
    level = len(_levels) - 1 if level is None else level
    if level < 0 or level >= len(_levels):
        raise RuntimeError(f"Trying to {call} for forward AD but no level exists, make sure to enter_dual_level() first.")
    return _levels[level]


def make_dual(tensor, tangent, *, level=None):
    """A view of a tensor with a tangent, whose ops are recorded."""
    found = _current(level, "create a dual Tensor")
    for what, value in (("tensor", tensor), ("tangent", tangent)):
        if not (value.is_floating_point() or value.is_complex()):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {value.dtype}")
    if tensor.shape != tangent.shape:
        raise RuntimeError(f"Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. Tensor is of size "
                           f"{list(tensor.shape)} while the given forward gradient is of size {list(tangent.shape)}.")
    if tensor.dtype != tangent.dtype:
        raise RuntimeError(f"Expected tangent to have the dtype of the tensor, {tensor.dtype}, but got {tangent.dtype}")
    if not _enabled:
        return tensor
    before = _C._set_grad_enabled(True)
    try:
        dual = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()
    finally:
        _C._set_grad_enabled(before)
    found.append((dual, tangent))
    return dual


def unpack_dual(tensor, *, level=None):
    """The value of a tensor, and its tangent."""
    if not _levels:
        return UnpackedDualTensor(tensor, None)
    duals = _current(level, "unpack a dual Tensor")
    if not duals or not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    from ..func import _along

    before = _C._set_grad_enabled(True)
    try:
        # Tangents and outer tensors may be recorded for a gradient of this derivative.
        outer = any(t.requires_grad for _, t in duals) or any(d.grad_fn is not None for d, _ in duals)
        (tangent,) = _along([tensor], [d for d, _ in duals], [t for _, t in duals], outer)
    finally:
        _C._set_grad_enabled(before)
    if outer:
        return UnpackedDualTensor(tensor, tangent)
    return UnpackedDualTensor(tensor.detach(), None if tangent is None else tangent.detach())
