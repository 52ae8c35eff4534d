"""Fetching the samples of a batch."""

from .collate import default_collate


class MapFetcher:
    """Samples of a dataset by their indices."""

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.dataset, self.auto_collation, self.collate_fn = dataset, auto_collation, collate_fn

    def fetch(self, indices):
        if not self.auto_collation:
            return self.collate_fn(self.dataset[indices])
        if self.collate_fn is default_collate:
            whole = whole_batches(self.dataset)
            if whole is not None:
                return whole(indices)
        batched = getattr(self.dataset, "__getitems__", None)
        return self.collate_fn(batched(indices) if batched else [self.dataset[i] for i in indices])


def whole_batches(dataset):
    """A function from indices to a collated batch, if the dataset supports that in one call."""
    from ..dataset import Subset, TensorDataset

    if type(dataset) is TensorDataset:
        return dataset._batch
    if type(dataset) is Subset:
        inner = whole_batches(dataset.dataset)
        if inner is not None:
            return lambda indices: inner([dataset.indices[i] for i in indices])
    return None


class IterableFetcher:
    """As many samples as there are indices, in order."""

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.dataset, self.dataset_iter = dataset, iter(dataset)
        self.auto_collation, self.collate_fn, self.drop_last = auto_collation, collate_fn, drop_last
        self.ended = False

    def fetch(self, indices):
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        samples = []
        for _ in indices:
            try:
                samples.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not samples or (self.drop_last and len(samples) < len(indices)):
            raise StopIteration
        return self.collate_fn(samples)


#: PyTorch's names.
_MapDatasetFetcher, _IterableDatasetFetcher = MapFetcher, IterableFetcher
