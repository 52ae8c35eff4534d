"""Pipes over iterables, each also a method of all pipes: ``IterableWrapper(range(8)).map(f).batch(4)``."""

import copy

from .. import DataChunk, IterDataPipe, functional_datapipe
from .combinatorics import SamplerIterDataPipe, ShufflerIterDataPipe

__all__ = ["Batcher", "Collator", "Concater", "Filter", "IterableWrapper", "Mapper", "Sampler", "Shuffler", "UnBatcher", "Zipper"]


class IterableWrapper(IterDataPipe):
    """An iterable as a pipe; each pass iterates over a copy."""

    def __init__(self, iterable, deepcopy=True):
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self):
        return iter(copy.deepcopy(self.iterable) if self.deepcopy else self.iterable)

    def __len__(self):
        return len(self.iterable)


@functional_datapipe("map")
class Mapper(IterDataPipe):
    """Applies a function to each element; to the columns ``input_col``, into the column ``output_col``, if given."""

    def __init__(self, datapipe, fn, input_col=None, output_col=None):
        self.datapipe, self.fn, self.input_col, self.output_col = datapipe, fn, input_col, output_col

    def _apply(self, data):
        if self.input_col is None:
            return self.fn(data)
        columns = self.input_col if isinstance(self.input_col, (list, tuple)) else [self.input_col]
        result = self.fn(*(data[c] for c in columns))
        made = copy.copy(data) if isinstance(data, dict) else list(data)
        target = columns[0] if self.output_col is None else self.output_col
        if target == -1 and not isinstance(made, dict):
            made.append(result)
        else:
            made[target] = result
        return tuple(made) if isinstance(data, tuple) else made

    def __iter__(self):
        return map(self._apply, self.datapipe)

    def __len__(self):
        return len(self.datapipe)


@functional_datapipe("collate")
class Collator(Mapper):
    """Collates batches."""

    def __init__(self, datapipe, conversion=None, collate_fn=None):
        from ..._utils.collate import default_collate

        super().__init__(datapipe, collate_fn or conversion or default_collate)


@functional_datapipe("filter")
class Filter(IterDataPipe):
    """Elements for which a function is true."""

    def __init__(self, datapipe, filter_fn, input_col=None):
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def __iter__(self):
        for data in self.datapipe:
            if self.filter_fn(data if self.input_col is None else data[self.input_col]):
                yield data


@functional_datapipe("batch")
class Batcher(IterDataPipe):
    """Elements in batches."""

    def __init__(self, datapipe, batch_size, drop_last=False, wrapper_class=DataChunk):
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = datapipe, batch_size, drop_last, wrapper_class

    def __iter__(self):
        batch = []
        for data in self.datapipe:
            batch.append(data)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self):
        count = len(self.datapipe)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcher(IterDataPipe):
    """Elements of batches, ``unbatch_level`` deep, or all the way if it is -1."""

    def __init__(self, datapipe, unbatch_level=1):
        if unbatch_level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def _elements(self, data, level):
        if level == 0 or level < 0 and not isinstance(data, (list, DataChunk)):
            yield data
            return
        for inner in data:
            yield from self._elements(inner, level - 1)

    def __iter__(self):
        for data in self.datapipe:
            yield from self._elements(data, self.unbatch_level)


@functional_datapipe("concat")
class Concater(IterDataPipe):
    """Concatenated pipes."""

    def __init__(self, *datapipes):
        self.datapipes = datapipes

    def __iter__(self):
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self):
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class Zipper(IterDataPipe):
    """Zipped pipes."""

    def __init__(self, *datapipes):
        self.datapipes = datapipes

    def __iter__(self):
        return zip(*self.datapipes)

    def __len__(self):
        return min(map(len, self.datapipes))


Sampler, Shuffler = SamplerIterDataPipe, ShufflerIterDataPipe
