"""``torch.distributed.tensor.experimental``: context parallelism, functions on local parts."""

from contextlib import contextmanager

from .. import _ops
from ._attention import context_parallel, ulysses_attention
from ._func_map import local_map

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding", "ulysses_attention"]


@contextmanager
def implicit_replication():
    """Within the context plain tensors beside DTensors count as replicated."""
    before, _ops.implicit_replication = _ops.implicit_replication, True
    try:
        yield
    finally:
        _ops.implicit_replication = before


def register_sharding(op):
    """Not supported: rules of ops are compiled."""
    raise NotImplementedError("register_sharding is not supported: sharding rules are compiled with the ops; use local_map to run a function on local parts")
