"""Datasets, samplers and the loader: ``torch.utils.data``."""

from ._utils.collate import default_collate, default_convert
from ._utils.info import get_worker_info
from .dataloader import DataLoader, _DatasetKind
from .dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .distributed import DistributedSampler
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DFIterDataPipe", "DataChunk", "DataLoader", "Dataset", "DistributedSampler", "IterDataPipe",
    "IterableDataset", "MapDataPipe", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler",
    "TensorDataset", "WeightedRandomSampler", "_DatasetKind", "argument_validation", "default_collate", "default_convert", "functional_datapipe",
    "get_worker_info", "guaranteed_datapipes_determinism", "non_deterministic", "random_split", "runtime_validation",
    "runtime_validation_disabled",
]

_DATAPIPES = frozenset(
    "DFIterDataPipe DataChunk IterDataPipe MapDataPipe argument_validation functional_datapipe guaranteed_datapipes_determinism "
    "non_deterministic runtime_validation runtime_validation_disabled".split()
)


def __getattr__(name):
    if name in _DATAPIPES:
        from . import datapipes

        return getattr(datapipes, name)
    from ..._functions import _missing

    return _missing(__name__, name)
