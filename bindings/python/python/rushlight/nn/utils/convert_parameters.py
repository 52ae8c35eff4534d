"""Parameters as one vector, and back."""

from __future__ import annotations

from ... import _C

__all__ = ["parameters_to_vector", "vector_to_parameters"]

Tensor = _C.Tensor


def parameters_to_vector(parameters) -> Tensor:
    """All elements of parameters, concatenated."""
    return _C._torch.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters) -> None:
    """Sets parameters to the elements of a vector. They become views of it."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    start = 0
    for p in parameters:
        count = p.numel()
        p.data = vec[start : start + count].view_as(p).data
        start += count
