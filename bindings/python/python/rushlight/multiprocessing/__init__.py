"""``torch.multiprocessing``: Python's, with ``spawn``. Tensors after ``share_memory_`` are shared with other processes; others are copied."""

import multiprocessing as _python
import sys
from multiprocessing import *  # noqa: F401,F403

from .. import _sharing  # noqa: F401
from . import spawn as _spawn_module  # noqa: F401
from .spawn import (  # noqa: F401
    ENV_VAR_PARALLEL_START,
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    start_processes,
)
from .spawn import spawn as spawn  # noqa: F401

__all__ = [*_python.__all__, "spawn", "start_processes", "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy"]

# Programs also import Python's own names from here.
for _name in ("connection", "context", "managers", "process", "queues", "reduction", "shared_memory", "synchronize"):
    sys.modules.setdefault(f"{__name__}.{_name}", __import__(f"multiprocessing.{_name}", fromlist=["_"]))

_STRATEGIES = {"file_descriptor", "file_system"}
_strategy = "file_descriptor"


def get_all_sharing_strategies():
    """Accepted ways to share memory. All use descriptors of anonymous files."""
    return set(_STRATEGIES)


def get_sharing_strategy():
    """The strategy that was set."""
    return _strategy


def set_sharing_strategy(new_strategy):
    """Sets the strategy."""
    global _strategy
    if new_strategy not in _STRATEGIES:
        raise ValueError(f"unknown sharing strategy: {new_strategy}")
    _strategy = new_strategy
