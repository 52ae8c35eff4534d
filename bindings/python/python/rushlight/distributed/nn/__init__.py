"""``torch.distributed.nn``: collectives that autograd records."""

from . import functional
from .functional import all_gather, all_reduce, broadcast, reduce_scatter  # noqa: F401

__all__ = ["functional", "all_gather", "all_reduce", "broadcast", "reduce_scatter"]


def __getattr__(name):
    raise AttributeError(f"rushlight has no 'torch.distributed.nn.{name}': all_gather, all_reduce, broadcast and reduce_scatter are what autograd records")
