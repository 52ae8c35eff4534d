"""Placements of a tensor along the dimensions of a mesh."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from ... import _C

__all__ = ["DTensorSpec", "Partial", "Placement", "Replicate", "Shard", "TensorMeta"]


class Placement:
    """The base of placements."""

    def is_shard(self, dim=None):
        return isinstance(self, Shard) and (dim is None or self.dim == dim)

    def is_replicate(self):
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op=None):
        return isinstance(self, Partial) and (reduce_op is None or self.reduce_op == reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank of a mesh dimension has a chunk of tensor dimension ``dim``; the last chunks may be smaller or empty."""

    dim: int

    def __str__(self):
        return f"S({self.dim})"


@dataclass(frozen=True)
class _StridedShard(Shard):
    """A ``Shard`` of what a later mesh dimension has left of the same dimension, ``split_factor`` ways: FSDP over tensor parallelism."""

    split_factor: int = 1

    def __repr__(self):
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Each rank has the whole tensor."""

    def __str__(self):
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Each rank has a summand; ``reduce_op`` combines them."""

    reduce_op: str = "sum"

    def __repr__(self):
        return f"Partial({self.reduce_op})"

    def __str__(self):
        return f"P({self.reduce_op})"


class TensorMeta(NamedTuple):
    """The global size, strides and dtype of a distributed tensor."""

    shape: Any
    stride: tuple
    dtype: _C.dtype


class DTensorSpec(NamedTuple):
    """The mesh, the placements and the size of a distributed tensor."""

    mesh: Any
    placements: tuple
    tensor_meta: Any = None

    @property
    def shape(self):
        return self.tensor_meta.shape


def _code(placement):
    """A placement as the compiled part names it."""
    if isinstance(placement, Shard):
        return f"{'T' if isinstance(placement, _StridedShard) else 'S'}{placement.dim}"
    if isinstance(placement, Replicate):
        return "R"
    if isinstance(placement, Partial):
        return f"P{placement.reduce_op}"
    raise TypeError(f"expected a Placement, got {placement!r}")


def _codes(placements):
    return [_code(p) for p in placements]


def _placement(code):
    """The placement that the compiled part names."""
    return {"S": lambda: Shard(int(code[1:])), "T": lambda: _StridedShard(int(code[1:])), "R": Replicate, "P": lambda: Partial(code[1:])}[code[0]]()


def _normal(placements, mesh, dims, call):
    """Placements with dimensions counted from the start; all ``Replicate`` if there are none."""
    if placements is None:
        return (Replicate(),) * mesh.ndim
    placements = (placements,) if isinstance(placements, Placement) else tuple(placements)
    if len(placements) != mesh.ndim:
        raise ValueError(f"{call}: `placements` must have the same length as `device_mesh.ndim`! Found placements length: {len(placements)}, and device_mesh.ndim: {mesh.ndim}.")
    found = []
    for p in placements:
        if isinstance(p, Shard) and dims is not None:
            if not -dims <= p.dim < max(dims, 1):
                raise ValueError(f"{call}: {p!r} of a tensor of {dims} dimensions")
            if p.dim < 0:
                p = _StridedShard(p.dim + dims, split_factor=p.split_factor) if isinstance(p, _StridedShard) else Shard(p.dim + dims)
        found.append(p)
    return tuple(found)
