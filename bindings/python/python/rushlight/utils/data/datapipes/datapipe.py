"""``torch.utils.data.datapipes.datapipe``: the classes of data pipes, and their wrappers of loaders."""

from . import DFIterDataPipe, IterDataPipe, MapDataPipe

__all__ = ["DFIterDataPipe", "IterDataPipe", "MapDataPipe"]


class _DataPipeSerializationWrapper:
    """A pipe as it goes to worker processes."""

    def __init__(self, datapipe):
        self._datapipe = datapipe

    def __len__(self):
        return len(self._datapipe)


class _IterDataPipeSerializationWrapper(_DataPipeSerializationWrapper, IterDataPipe):
    def __iter__(self):
        yield from self._datapipe


class _MapDataPipeSerializationWrapper(_DataPipeSerializationWrapper, MapDataPipe):
    def __getitem__(self, index):
        return self._datapipe[index]
