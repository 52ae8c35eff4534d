"""Parameters as one vector, and back."""

from __future__ import annotations

from ... import _C

__all__ = ["parameters_to_vector", "vector_to_parameters"]

Tensor = _C.Tensor


def parameters_to_vector(parameters) -> Tensor:
    """All elements of parameters, one after the other."""
    return _C._torch.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters) -> None:
    """Gives parameters the elements of a vector. They are parts of it from then on."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    start = 0
    for p in parameters:
        count = p.numel()
        p.data = vec[start : start + count].view_as(p).data
        start += count
