"""A loader's worker processes, as seen by the main process."""

import itertools
import multiprocessing
import os
import signal
import time
import uuid
import warnings
import weakref
from multiprocessing import connection

from .... import _C
from ..dataloader import _BaseDataLoaderIter
from ..sampler import draw_seed
from . import transport, worker
from .pin_memory import pin_memory, wanted
from .spans import profiled
from .worker import ExceptionWrapper, Resume, StopWorker

# Seconds that a worker may take to exit by itself.
_GRACE = 5.0


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Batches from worker processes, in the order of the indices, some prepared ahead.

    Index lists go to the workers in turn, through a queue for each; batches come back through a pipe for each, so that a worker that dies is
    seen at once and harms no other.
    """

    def __init__(self, loader):
        self._timeout, self._in_order = loader.timeout, loader.in_order
        self._persistent = loader.persistent_workers
        self._prefetch = max(1, loader.prefetch_factor)
        self._iterable = loader._dataset_kind == 1
        self._indices = iter(loader._index_sampler)
        self._loader = loader
        self._pin = wanted(loader)
        seed = draw_seed(loader.generator)
        context = loader.multiprocessing_context or multiprocessing.get_context()
        self._prefix = os.path.join(transport.directory(), f"rushlight_{os.getpid()}_{uuid.uuid4().hex[:12]}_")
        self._queues, self._pipes, self._workers = [], [], []
        self._finalizer = weakref.finalize(self, _shut_down, os.getpid(), self._queues, self._pipes, self._workers, self._prefix)
        for i in range(loader.num_workers):
            queue = context.Queue()
            queue.cancel_join_thread()
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=worker.run, daemon=True,
                args=(
                    i, loader.num_workers, loader.dataset, self._iterable, loader._auto_collation, loader.collate_fn, loader.drop_last,
                    seed, loader.worker_init_fn, queue, theirs, self._prefix, os.getpid(),
                ),
            )
            with warnings.catch_warnings():
                # Workers use one thread: they do not need the pool.
                warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork.*", category=DeprecationWarning)
                process.start()
            theirs.close()
            self._queues.append(queue)
            self._pipes.append(ours)
            self._workers.append(process)
        self._start()

    def _start(self):
        self._active = [True] * len(self._workers)
        self._turn = itertools.cycle(range(len(self._workers)))
        # Requested batches: the worker, until the batch has arrived.
        self._asked, self._ready = {}, {}
        self._sent = self._yielded = 0
        for _ in range(self._prefetch * len(self._workers)):
            self._ask()

    def _reset(self, loader):
        """Restarts with the same processes."""
        self._loader = loader
        # Drains requested batches that are not needed any more.
        while self._asked:
            self._receive(discard=True)
        self._indices = iter(loader._index_sampler)
        seed = draw_seed(loader.generator)
        for queue in self._queues:
            queue.put(Resume(seed))
        waiting = set(range(len(self._workers)))
        while waiting:
            i, (_, message) = self._read()
            if isinstance(message, Resume):
                waiting.discard(i)
            else:
                transport.discard(message)
        self._start()

    def _ask(self):
        """Requests the next batch from the next worker."""
        for _ in self._workers:
            i = next(self._turn)
            if self._active[i]:
                break
        else:
            return
        try:
            wanted = next(self._indices)
        except StopIteration:
            return
        self._queues[i].put((self._sent, wanted))
        self._asked[self._sent] = i
        self._sent += 1

    def _read(self):
        """A worker's number and its message, or an error if one has died or none answers."""
        deadline = None if self._timeout == 0 else time.monotonic() + self._timeout
        sentinels = {p.sentinel: p for p in self._workers}
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            found = connection.wait([*self._pipes, *sentinels], left)
            for i, pipe in enumerate(self._pipes):
                if pipe in found:
                    try:
                        return i, pipe.recv()
                    except EOFError:
                        self._died([self._workers[i]])
            if found:
                self._died([sentinels[s] for s in found if s in sentinels])
            if deadline is not None and time.monotonic() >= deadline:
                self._finalizer()
                raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")

    def _died(self, processes):
        pids = ", ".join(str(p.pid) for p in processes)
        # Its pipe closes a moment before its exit code is known.
        processes[0].join(_GRACE)
        code = processes[0].exitcode
        how = ""
        if code is not None and code < 0:
            how = f": killed by signal {signal.Signals(-code).name if -code in signal.valid_signals() else -code}"
        elif code is not None:
            how = f" with status {code}"
        self._finalizer()
        raise RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly{how}")

    def _receive(self, discard=False):
        """Stores one arrived batch."""
        _, (at, message) = self._read()
        i = self._asked.pop(at)
        if discard:
            transport.discard(message)
            # A worker whose dataset has ended does not answer any more.
            if isinstance(_peek(message), StopWorker):
                self._forget(i)
            return
        data = transport.unpack(message)
        if isinstance(data, StopWorker):
            self._forget(i)
            self._ask()
            return
        self._ready[at] = data

    def _forget(self, i):
        self._active[i] = False
        for at in [at for at, asked in self._asked.items() if asked == i]:
            del self._asked[at]

    def __iter__(self):
        return self

    def __next__(self):
        if _C._profiler_is_on():
            with profiled(self):
                return self._take()
        return self._take()

    def _take(self):
        if not self._finalizer.alive:
            raise StopIteration
        while True:
            at = self._next_ready()
            if at is not None:
                data = self._ready.pop(at)
                self._ask()
                if isinstance(data, ExceptionWrapper):
                    data.reraise()
                self._count()
                return pin_memory(data) if self._pin else data
            if not self._asked:
                if not self._persistent:
                    self._finalizer()
                raise StopIteration
            self._receive()

    def _next_ready(self):
        """The index of the next batch to return, if it has arrived."""
        if not self._ready:
            return None
        first = min(self._ready)
        if not self._in_order or all(first < at for at in self._asked):
            return first
        return None

    def __len__(self):
        return len(self._loader._index_sampler)


def _peek(message):
    """The object of a message that is not a batch."""
    return transport.unpack(message) if message[3] is None and not message[1] else None


def _shut_down(owner, queues, pipes, processes, prefix):
    """Stops the workers and removes their shared memory."""
    if os.getpid() != owner:
        # A forked process has a copy of the iterator, not its workers.
        return
    for queue in queues:
        queue.put(None)
    for pipe in pipes:
        pipe.close()
    deadline = time.monotonic() + _GRACE
    for process in processes:
        process.join(max(0.1, deadline - time.monotonic()))
        if process.is_alive():
            process.terminate()
            process.join()
    for queue in queues:
        queue.close()
    folder, name = os.path.split(prefix)
    for left in os.listdir(folder):
        if left.startswith(name):
            try:
                os.unlink(os.path.join(folder, left))
            except FileNotFoundError:
                pass
