"""The loader: from a dataset to batches, in this process or in worker processes."""

import warnings
from typing import Any, Callable, Generic, List, TypeVar

from ... import _C
from ._utils.collate import default_collate, default_convert
from ._utils.fetch import IterableFetcher, MapFetcher, whole_batches
from ._utils.info import get_worker_info  # noqa: F401
from ._utils.pin_memory import pin_memory, wanted
from ._utils.spans import profiled
from .dataset import IterableDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

#: Types of ``collate_fn`` and ``worker_init_fn``.
_collate_fn_t = Callable[[List[Any]], Any]
_worker_init_fn_t = Callable[[int], None]


T_co = TypeVar("T_co", covariant=True)


class _DatasetKind:
    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last):
        fetcher = MapFetcher if kind == _DatasetKind.Map else IterableFetcher
        return fetcher(dataset, auto_collation, collate_fn, drop_last)


def _sharding_worker_init_fn(worker_init_fn, world_size, rank_id, worker_id):
    """Starts a worker of a rank. Data pipes are not divided among workers: see ``get_worker_info``."""
    if worker_init_fn is not None:
        worker_init_fn(worker_id)


class _InfiniteConstantSampler(Sampler):
    """A stand-in sampler for iterable datasets, to count batches."""

    def __iter__(self):
        while True:
            yield None


class DataLoader(Generic[T_co]):
    """Batches of a dataset, in order or shuffled.

    With ``num_workers`` above zero, processes prepare batches ahead and hand them over in shared memory. Batches of a ``TensorDataset`` with
    the default ``collate_fn`` are one indexing operation, cheaper than handing them over, and are made in this process all the same.

    >>> import rushlight as torch
    >>> from rushlight.utils.data import DataLoader, TensorDataset
    >>> dataset = TensorDataset(torch.arange(5), torch.arange(5) * 2)
    >>> for x, y in DataLoader(dataset, batch_size=2):
    ...     print(x.tolist(), y.tolist())
    [0, 1] [0, 2]
    [2, 3] [4, 6]
    [4] [8]
    """

    __initialized = False
    _FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")

    def __init__(
        self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None, pin_memory=False,
        drop_last=False, timeout=0, worker_init_fn=None, multiprocessing_context=None, generator=None, *, prefetch_factor=None,
        persistent_workers=False, pin_memory_device="", in_order=True,
    ):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
                             "multiprocessing, otherwise set prefetch_factor to None.")
        if num_workers > 0 and prefetch_factor is None:
            prefetch_factor = 2
        elif prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self.dataset, self.num_workers, self.prefetch_factor = dataset, num_workers, prefetch_factor
        self.pin_memory, self.pin_memory_device, self.timeout, self.in_order = pin_memory, pin_memory_device, timeout, in_order
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        if isinstance(dataset, IterableDataset):
            self._dataset_kind = _DatasetKind.Iterable
            self._check_iterable(shuffle, sampler, batch_sampler)
        else:
            self._dataset_kind = _DatasetKind.Map
            shuffle = bool(shuffle)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._dataset_kind == _DatasetKind.Iterable:
                sampler = _InfiniteConstantSampler()
            else:
                sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last, self.sampler, self.batch_sampler = batch_size, drop_last, sampler, batch_sampler
        self.generator = generator
        self.collate_fn = collate_fn or (default_collate if self._auto_collation else default_convert)
        self.persistent_workers = persistent_workers
        self._iterator = None
        self.__initialized = True
        #: The length that an iterable dataset reported to ``len(loader)``.
        self._reported_length = None
        self.check_worker_number_rationality()

    def check_worker_number_rationality(self):
        """Warns of more workers than this process may use processors."""
        if self.num_workers == 0:
            return
        import os

        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if processors is not None and self.num_workers > processors:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes, but {processors} processors are at hand: excessive worker creation might "
                "get DataLoader running slow or even freeze; lower num_workers.", stacklevel=3,
            )

    @staticmethod
    def _check_iterable(shuffle, sampler, batch_sampler):
        if shuffle not in {False, None}:
            raise ValueError(f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}")
        for name, value in [("sampler", sampler), ("batch_sampler", batch_sampler)]:
            if value is not None:
                raise ValueError(f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}")

    def __setattr__(self, name, value):
        if self.__initialized and name in self._FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self):
        """How workers are started: None for Python's default, or a context or its name."""
        return self.__context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context):
        if context is not None:
            import multiprocessing

            if self.num_workers == 0:
                raise ValueError(f"multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                                 f"num_workers={self.num_workers}")
            if isinstance(context, str):
                known = multiprocessing.get_all_start_methods()
                if context not in known:
                    raise ValueError(f"multiprocessing_context option should specify a valid start method in {known!r}, but got "
                                     f"multiprocessing_context={context!r}")
                context = multiprocessing.get_context(context)
            elif not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError("multiprocessing_context option should be a valid context object or a string specifying the start method, "
                                f"but got multiprocessing_context={context}")
        self.__context = context

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    def _get_iterator(self):
        in_process = self.num_workers == 0 or (
            self._auto_collation and self.collate_fn is default_collate and self.worker_init_fn is None and whole_batches(self.dataset)
        )
        if in_process:
            return _SingleProcessDataLoaderIter(self)
        from ._utils.processes import _MultiProcessingDataLoaderIter

        return _MultiProcessingDataLoaderIter(self)

    def __iter__(self):
        if not self.persistent_workers:
            return self._get_iterator()
        if self._iterator is None:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    def __len__(self):
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)
        length = self._reported_length = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


class _BaseDataLoaderIter:
    """Base class of iterators over a loader. Libraries derive from it, with a method ``_next_data``."""

    def __init__(self, loader):
        self._loader, self._dataset, self._dataset_kind = loader, loader.dataset, loader._dataset_kind
        self._shared_seed = self._pg = None
        self._world_size, self._rank = 1, 0
        self._auto_collation, self._drop_last, self._collate_fn = loader._auto_collation, loader.drop_last, loader.collate_fn
        self._index_sampler, self._num_workers, self._timeout = loader._index_sampler, loader.num_workers, loader.timeout
        self._pin_memory, self._pin_memory_device = wanted(loader), None
        self._persistent_workers = loader.persistent_workers
        self._IterableDataset_len_called = None
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = draw_seed(loader.generator)
        self._num_yielded = 0

    def __iter__(self):
        return self

    def __len__(self):
        return len(self._index_sampler)

    def _reset(self, loader, first_iter=False):
        self._sampler_iter, self._num_yielded = iter(self._index_sampler), 0

    def _next_index(self):
        return next(self._sampler_iter)

    def _next_data(self):
        raise NotImplementedError(f"{type(self).__name__} has no _next_data")

    def __next__(self):
        data = self._next_data()
        self._num_yielded += 1
        return data

    def _count(self):
        """Counts a batch; warns where an iterable dataset gives more of them than it has said."""
        self._yielded += 1
        said = self._loader._reported_length
        if said is not None and self._yielded > said:
            text = f"The length of {self._loader.dataset} was reported to be {said} (by len() of its loader), but {self._yielded} samples have been fetched."
            if self._loader.num_workers > 0:
                text += " For multiprocessing data-loading, this happens where every worker reads the whole dataset: see get_worker_info()."
            warnings.warn(text, stacklevel=3)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Makes batches on request, in this process."""

    def __init__(self, loader):
        self._dataset = loader.dataset
        self._make_fetcher = lambda: _DatasetKind.create_fetcher(
            loader._dataset_kind, loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last
        )
        self._reset(loader)

    def _reset(self, loader):
        self._indices = iter(loader._index_sampler)
        # PyTorch draws a seed for workers even if there are none.
        self._base_seed = draw_seed(loader.generator)
        self._loader = loader
        self._pin = wanted(loader)
        self._fetch = self._make_fetcher().fetch
        self._yielded = 0

    def __iter__(self):
        return self

    def __next__(self):
        if _C._profiler_is_on():
            with profiled(self):
                batch = self._fetch(next(self._indices))
        else:
            batch = self._fetch(next(self._indices))
        self._count()
        return pin_memory(batch) if self._pin else batch

    def __len__(self):
        return len(self._loader._index_sampler)


def __getattr__(name):
    if name == "_MultiProcessingDataLoaderIter":
        from ._utils.processes import _MultiProcessingDataLoaderIter

        return _MultiProcessingDataLoaderIter
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
