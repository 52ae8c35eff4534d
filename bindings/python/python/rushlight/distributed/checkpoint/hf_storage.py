"""Hugging Face's safetensors as a storage of distributed checkpoints: sharded models save and load them directly, no rank ever holds the whole."""

from __future__ import annotations

from ... import _C
from .filesystem import FileSystemReader, FileSystemWriter

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes ``model.safetensors``, or several files with an index, as Hugging Face's libraries load them: ``fqn_to_index_mapping`` gives each tensor the number of its
    file, without one a file has at most ``max_shard_size`` bytes. Every rank writes its parts of tensors into the same files, so they are consolidated whatever
    ``save_distributed`` and ``enable_consolidation`` say."""

    def __init__(
        self, path, fqn_to_index_mapping=None, thread_count=1, save_distributed=False, enable_consolidation=False, thread_count_consolidation=1, *,
        max_shard_size=5_000_000_000,
    ):
        super().__init__(path, thread_count=thread_count)
        self.fqn_to_index_mapping, self.max_shard_size = fqn_to_index_mapping, max_shard_size
        self.save_distributed, self.enable_consolidation, self.thread_count_consolidation = save_distributed, enable_consolidation, thread_count_consolidation

    def _plan(self, described):
        """The files of tensors given as name, dtype and shape."""
        numbers = None
        if self.fqn_to_index_mapping is not None:
            missing = [name for name, _, _ in described if name not in self.fqn_to_index_mapping]
            if missing:
                raise ValueError(f"HuggingFaceStorageWriter: fqn_to_index_mapping lacks {missing[:5]}")
            numbers = [self.fqn_to_index_mapping[name] for name, _, _ in described]
        return _C._SafetensorsPlan(described, numbers, self.max_shard_size)


class HuggingFaceStorageReader(FileSystemReader):
    """Reads a folder of safetensors: a model of Hugging Face's, or the files of ranks that PyTorch's writer has left unconsolidated."""

    def __init__(self, path, thread_count=1):
        super().__init__(path)
        self.thread_count = thread_count

    def _open(self):
        return _C._CheckpointReader(self.path, True)
