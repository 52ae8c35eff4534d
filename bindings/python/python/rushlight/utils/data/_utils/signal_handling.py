"""Workers of loaders that libraries write: one that died is an error in the main process when it next asks."""

import os

#: Process ids of workers by loader.
_workers = {}


def _set_worker_pids(key, pids):
    """Notes the workers of a loader."""
    _workers[key] = tuple(pids)


def _remove_worker_pids(key):
    """Forgets them."""
    _workers.pop(key, None)


def _set_SIGCHLD_handler():
    """Nothing: loaders look at their workers themselves when they wait for data, so no signal is needed."""


def _set_worker_signal_handlers():
    """Nothing: a worker that fails ends by Python's own handlers."""


def _error_if_any_worker_fails():
    """An error if a worker was killed."""
    for pids in _workers.values():
        for pid in pids:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                raise RuntimeError(f"DataLoader worker (pid {pid}) exited unexpectedly") from None
