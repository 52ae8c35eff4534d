"""Datasets, and datasets made of datasets."""

import bisect
import itertools
import math
import warnings
from typing import Generic, TypeVar

from ... import _C

__all__ = [
    "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset", "random_split",
]

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Map-style dataset: subclasses define ``__getitem__`` and usually ``__len__``. ``__getitems__``, if defined, gets a whole batch."""

    def __getitem__(self, index):
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Iterable dataset: subclasses define ``__iter__``. Each worker process has its own copy; ``get_worker_info`` distinguishes
    apart."""

    def __add__(self, other):
        return ChainDataset([self, other])

    def __iter__(self):
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")


class TensorDataset(Dataset):
    """Tensors by their first dimension."""

    def __init__(self, *tensors):
        if any(tensors[0].size(0) != tensor.size(0) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self):
        return self.tensors[0].size(0)

    def _batch(self, indices):
        """A collated batch of these samples, by one call per tensor."""
        rows = _C.tensor(indices, dtype=_C.int64)
        return [tensor.index_select(0, rows.to(tensor.device)) for tensor in self.tensors]


class StackDataset(Dataset):
    """Samples of several datasets combined: as a tuple, or as a dict if the datasets are named."""

    def __init__(self, *args, **kwargs):
        if args:
            if kwargs:
                raise ValueError("Supported either tuple-like (by position) or dict-like (by name) datasets of a StackDataset, not both")
            self.datasets = args
        elif kwargs:
            self.datasets = kwargs
        else:
            raise ValueError("At least one dataset should be passed")
        lengths = [len(d) for d in (kwargs.values() if kwargs else args)]
        if len(set(lengths)) != 1:
            raise ValueError("Size mismatch between datasets")
        self._length = lengths[0]

    def __getitem__(self, index):
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices):
        def of(dataset):
            if not callable(getattr(dataset, "__getitems__", None)):
                return [dataset[i] for i in indices]
            samples = dataset.__getitems__(indices)
            if len(samples) != len(indices):
                raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(samples)}")
            return samples

        if isinstance(self.datasets, dict):
            columns = [of(dataset) for dataset in self.datasets.values()]
            return [dict(zip(self.datasets, row)) for row in zip(*columns)]
        return list(zip(*[of(dataset) for dataset in self.datasets]))

    def __len__(self):
        return self._length


class ConcatDataset(Dataset):
    """Concatenated datasets."""

    @staticmethod
    def cumsum(sequence):
        """The lengths of the first parts, added up."""
        return list(itertools.accumulate(len(part) for part in sequence))

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx):
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        if which == len(self.datasets):
            raise IndexError(f"index {idx} is out of range of a ConcatDataset of {len(self)} samples")
        return self.datasets[which][idx - (self.cumulative_sizes[which - 1] if which else 0)]

    @property
    def cummulative_sizes(self):
        warnings.warn("cummulative_sizes attribute is renamed to cumulative_sizes", DeprecationWarning, stacklevel=2)
        return self.cumulative_sizes


class ChainDataset(IterableDataset):
    """Concatenated iterable datasets."""

    def __init__(self, datasets):
        self.datasets = datasets

    def __iter__(self):
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield from dataset

    def __len__(self):
        return sum(len(dataset) for dataset in self.datasets)


class Subset(Dataset[T_co]):
    """A subset of a dataset's samples."""

    def __init__(self, dataset, indices):
        kind = type(self)
        if kind.__getitem__ is not Subset.__getitem__ and kind.__getitems__ is Subset.__getitems__:
            # A loader asks for whole batches and would get past the subclass's samples.
            raise NotImplementedError(f"{kind.__name__} overrides __getitem__ but not __getitems__, which loaders call for a batch; define both")
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, idx):
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices):
        wanted = [self.indices[i] for i in indices]
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.dataset.__getitems__(wanted)
        return [self.dataset[i] for i in wanted]

    def __len__(self):
        return len(self.indices)


def random_split(dataset, lengths, generator=None):
    """A dataset split into parts at random: by lengths, or by fractions that sum to one."""
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        sizes = []
        for i, fraction in enumerate(lengths):
            if fraction < 0 or fraction > 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1")
            sizes.append(int(math.floor(len(dataset) * fraction)))
        for i in range(len(dataset) - sum(sizes)):
            sizes[i % len(sizes)] += 1
        lengths = sizes
        for i, length in enumerate(lengths):
            if length == 0:
                warnings.warn(f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=2)
    if sum(lengths) != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    indices = _C._torch.randperm(sum(lengths), generator=generator).tolist()
    ends = itertools.accumulate(lengths)
    return [Subset(dataset, indices[end - length : end]) for end, length in zip(ends, lengths)]
