"""``torch.multiprocessing``: Python's, with ``spawn``. Tensors after ``share_memory_`` are shared with other processes; others are copied."""

from multiprocessing import *  # noqa: F401,F403
from multiprocessing import get_context

from . import _sharing  # noqa: F401


def _start(function, rank, args):
    function(rank, *args)


class ProcessRaisedException(Exception):
    """A spawned process that ended with an error."""


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Runs ``fn(rank, *args)`` in so many processes."""
    context = get_context(start_method)
    processes = [context.Process(target=_start, args=(fn, rank, args), daemon=daemon) for rank in range(nprocs)]
    for process in processes:
        process.start()
    if not join:
        return processes
    for process in processes:
        process.join()
    failed = [(rank, p.exitcode) for rank, p in enumerate(processes) if p.exitcode]
    if failed:
        raise ProcessRaisedException(f"process {failed[0][0]} terminated with exit code {failed[0][1]}")
    return None


def get_all_sharing_strategies():
    return {"file_system"}


def get_sharing_strategy():
    return "file_system"


def set_sharing_strategy(new_strategy):
    if new_strategy not in ("file_system", "file_descriptor"):
        raise ValueError(f"unknown sharing strategy: {new_strategy}")
