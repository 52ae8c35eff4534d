"""``torch.multiprocessing.pool``: Python's own pools, whose queues carry tensors."""

from multiprocessing.pool import *  # noqa: F401,F403
from multiprocessing.pool import Pool  # noqa: F401
from multiprocessing.pool import worker as _worker
from multiprocessing.queues import SimpleQueue  # noqa: F401


def clean_worker(*args, **kwargs):
    """Runs a worker of a pool, and collects garbage at its end."""
    import gc

    _worker(*args, **kwargs)
    gc.collect()
