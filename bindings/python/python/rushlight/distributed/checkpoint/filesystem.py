"""Checkpoints in folders."""

from __future__ import annotations

import dataclasses
import os
import shutil

from ... import _C
from .metadata import _from_rows
from .storage import StorageReader, StorageWriter

__all__ = ["FileSystemReader", "FileSystemWriter"]


@dataclasses.dataclass
class _StorageInfo:
    """Where bytes are."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: tuple | None = None


class FileSystemWriter(StorageWriter):
    """Writes a folder: ``__RANK_0.distcp`` by each rank, ``.metadata`` last. Files reach the disk before the commit (``sync_files``, always on)."""

    def __init__(
        self, path, single_file_per_rank=True, sync_files=True, thread_count=1, per_thread_copy_ahead=10_000_000, cache_staged_state_dict=False, overwrite=True,
        _extensions=None, serialization_format=None,
    ):
        if not single_file_per_rank:
            raise NotImplementedError("FileSystemWriter: single_file_per_rank=False is not supported; each rank writes one file")
        if _extensions:
            raise NotImplementedError("FileSystemWriter: extensions are not supported")
        if serialization_format is not None and getattr(serialization_format, "name", "") != "TORCH_SAVE":
            raise NotImplementedError("FileSystemWriter: only torch.save's format is supported")
        self.path, self.overwrite = os.fspath(path), overwrite
        # Performance hints of PyTorch's writer; the core writes directly from the tensors' memory.
        self.sync_files, self.thread_count, self.per_thread_copy_ahead, self.cache_staged_state_dict = sync_files, thread_count, per_thread_copy_ahead, cache_staged_state_dict

    @property
    def checkpoint_id(self):
        """The folder."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        """Whether it names a folder of this file system."""
        return "://" not in os.fspath(checkpoint_id)

    def _reset(self, checkpoint_id):
        if checkpoint_id is not None:
            self.path = os.fspath(checkpoint_id)

    def _prepare(self):
        """On one rank, before any writes: an earlier checkpoint of the folder stays valid, whole, until the new one is."""
        if os.path.exists(os.path.join(self.path, ".metadata")) and not self.overwrite:
            raise RuntimeError("Checkpoint already exists and self.overwrite=False.")
        os.makedirs(self.path, exist_ok=True)

    def _file(self, rank, token):
        """A file's name. A folder that holds a checkpoint gets other names, so that the old one stays whole until the commit."""
        plain = f"__{rank}_0.distcp"
        return plain if token is None else f"__{rank}_0_{token}.distcp"

    def _replaced(self, keep):
        """Removes the files of the checkpoint that was replaced."""
        for name in os.listdir(self.path):
            if name.startswith("__") and name.endswith(".distcp") and name not in keep:
                os.unlink(os.path.join(self.path, name))


class FileSystemReader(StorageReader):
    """Reads a folder."""

    def __init__(self, path, _extension_registry=None):
        if _extension_registry is not None:
            raise NotImplementedError("FileSystemReader: extensions are not supported")
        self.path = os.fspath(path)

    @property
    def checkpoint_id(self):
        """The folder."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        """Whether it names a folder of this file system."""
        return "://" not in os.fspath(checkpoint_id)

    def _reset(self, checkpoint_id):
        if checkpoint_id is not None:
            self.path = os.fspath(checkpoint_id)

    def _open(self):
        return _C._CheckpointReader(self.path)

    def read_metadata(self, *args, **kwargs):
        """What the checkpoint has."""
        reader = self._open()
        return _from_rows(reader.rows(), reader.paths(), self.path)


def _remove(folder):
    """Removes a checkpoint: first what makes it valid."""
    metadata = os.path.join(folder, ".metadata")
    if os.path.exists(metadata):
        os.unlink(metadata)
    shutil.rmtree(folder)
