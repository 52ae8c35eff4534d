"""The worker process."""

import os
import random
import signal
import sys
from queue import Empty

from .... import _C
from ...._utils import ExceptionWrapper
from . import MP_STATUS_CHECK_INTERVAL, info, transport
from .fetch import IterableFetcher, MapFetcher
from .info import WorkerInfo  # noqa: F401



def _generate_state(base_seed, worker_id):
    """Four numbers to seed NumPy's generator of a worker with: NumPy's own mixing of the loader's seed and the worker's number."""
    import numpy

    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return numpy.random.SeedSequence(words).generate_state(4).tolist()


class StopWorker:
    """Marks the end of a worker's iterable dataset."""

    def __init__(self, worker):
        self.worker = self.worker_id = worker


class Resume:
    """Restarts a persistent worker, with another seed."""

    def __init__(self, seed):
        self.seed = seed


#: PyTorch's names, for loaders of libraries. Their constructors take the same argument.
_IterableDatasetStopIteration, _ResumeIteration = StopWorker, Resume


class ManagerWatchdog:
    """In a worker: whether the process that started it is alive."""

    def __init__(self):
        self.manager_pid = os.getppid()

    def is_alive(self):
        return os.getppid() == self.manager_pid


def _seed_all(seed):
    from .... import manual_seed

    random.seed(seed)
    manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def _messages(queue, parent):
    """Requests of the main process, until it ends them or dies."""
    while True:
        try:
            message = queue.get(timeout=MP_STATUS_CHECK_INTERVAL)
        except Empty:
            if os.getppid() != parent:
                return
            continue
        if message is None:
            return
        yield message


def run(worker, workers, dataset, iterable, auto_collation, collate_fn, drop_last, base_seed, init_fn, indices, results, prefix, parent):
    """Main loop of a worker: makes batches for incoming index lists, until the main process ends them or dies."""
    # Ctrl-C reaches all processes; the main one stops the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _C.set_num_threads(1)
    seed = base_seed + worker
    _seed_all(seed)
    info.current = info.WorkerInfo(worker, workers, seed, dataset)
    kind = IterableFetcher if iterable else MapFetcher
    where = f"in DataLoader worker process {worker}"
    fetcher = failure = None
    try:
        if init_fn is not None:
            init_fn(worker)
        fetcher = kind(dataset, auto_collation, collate_fn, drop_last)
    except Exception:
        failure = ExceptionWrapper(where=where)
    ended = False
    try:
        for number, message in enumerate(_messages(indices, parent)):
            if isinstance(message, Resume):
                seed = message.seed + worker
                _seed_all(seed)
                info.current = info.WorkerInfo(worker, workers, seed, dataset)
                ended = False
                try:
                    fetcher = kind(dataset, auto_collation, collate_fn, drop_last)
                except Exception:
                    failure = ExceptionWrapper(where=where)
                results.send((None, message))
                continue
            at, wanted = message
            if ended:
                continue
            if failure is not None:
                data, failure = failure, None
            else:
                try:
                    data = fetcher.fetch(wanted)
                except StopIteration:
                    if iterable:
                        data, ended = StopWorker(worker), True
                    else:
                        data = ExceptionWrapper(where=where)
                except Exception:
                    data = ExceptionWrapper(where=where)
            try:
                packed = transport.pack(data, f"{prefix}{worker}_{number}")
            except Exception:
                packed = transport.pack(ExceptionWrapper(where=where), None)
            results.send((at, packed))
            del data, packed
    except (BrokenPipeError, ConnectionResetError, EOFError):
        # The main process is gone.
        pass


def __getattr__(name):
    if name == "_worker_info":
        return info.current
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
