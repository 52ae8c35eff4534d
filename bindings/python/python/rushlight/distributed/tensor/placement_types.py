"""Placements of a tensor on a mesh of devices. Parallelisation plans name placements; sharded tensors are not supported."""

from dataclasses import dataclass

from ... import _absent
from .._names import REASON

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


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
    """Each rank of a mesh dimension has a part of tensor dimension ``dim``."""

    dim: int

    def __str__(self):
        return f"S({self.dim})"


@dataclass(frozen=True)
class _StridedShard(Shard):
    """A ``Shard`` of a dimension that another mesh dimension has split ``split_factor`` ways."""

    split_factor: int = 1


@dataclass(frozen=True)
class Replicate(Placement):
    """Each rank has the whole tensor."""

    def __str__(self):
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Each rank has a summand; ``reduce_op`` combines them."""

    reduce_op: str = "sum"

    def __str__(self):
        return f"P({self.reduce_op})"

_absent.fill(globals(), "torch.distributed.tensor.placement_types", REASON, "DTensorSpec TensorMeta")
