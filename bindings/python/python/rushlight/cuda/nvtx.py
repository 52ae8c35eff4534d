"""``torch.cuda.nvtx``: ranges for NVIDIA's profiler; none are emitted. ``rushlight trace`` has what programs and kernels do."""

import contextlib

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def range_push(msg):
    """Begins a range inside the others. Returns its depth, from 0."""
    return 0


def range_pop():
    """Ends the innermost range. Returns its depth."""
    return 0


def range_start(msg):
    """Begins a range that may end on another thread. Returns a handle for :func:`range_end`."""
    return 0


def range_end(range_id):
    """Ends a range of :func:`range_start`."""


def mark(msg):
    """A moment with a name."""


@contextlib.contextmanager
def range(msg, *args, **kwargs):
    """A range around a block, or around a function as its decorator."""
    yield
