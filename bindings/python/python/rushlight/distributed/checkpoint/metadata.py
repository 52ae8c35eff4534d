"""What a checkpoint has, as PyTorch's classes. The core reads and writes the file."""

from __future__ import annotations

import dataclasses
from typing import Any

from ... import _C
from ..._size import Size

__all__ = ["BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties", "TensorStorageMetadata"]


@dataclasses.dataclass
class ChunkStorageMetadata:
    """A part of a tensor."""

    offsets: Any
    sizes: Any


@dataclasses.dataclass
class TensorProperties:
    """A tensor's dtype."""

    dtype: Any = _C.float32
    layout: Any = _C.strided
    requires_grad: bool = False
    memory_format: Any = _C.contiguous_format
    pin_memory: bool = False
    strides: tuple | None = None

    @staticmethod
    def create_from_tensor(tensor):
        """The properties of a tensor."""
        return TensorProperties(dtype=tensor.dtype, requires_grad=tensor.requires_grad, strides=tuple(tensor.stride()))


@dataclasses.dataclass
class TensorStorageMetadata:
    """A tensor and its parts."""

    properties: TensorProperties
    size: Any
    chunks: list


@dataclasses.dataclass
class BytesStorageMetadata:
    """A value that is no tensor."""


@dataclasses.dataclass(frozen=True)
class MetadataIndex:
    """A part of an entry."""

    fqn: str
    offset: Any = None
    index: int | None = dataclasses.field(hash=False, compare=False, default=None)


@dataclasses.dataclass
class StorageMeta:
    """Where a checkpoint is."""

    checkpoint_id: Any = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Metadata:
    """What a checkpoint has."""

    state_dict_metadata: dict
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


def _from_rows(rows, paths, checkpoint_id):
    """PyTorch's classes from the core's rows."""
    from .filesystem import _StorageInfo

    entries, places = {}, {}
    for name, dtype, size, requires_grad, chunks in rows:
        for i, (offsets, _, place) in enumerate(chunks):
            key = MetadataIndex(name, None, None) if dtype is None else MetadataIndex(name, Size(offsets), i)
            places[key] = None if place is None else _StorageInfo(*place)
        if dtype is None:
            entries[name] = BytesStorageMetadata()
        else:
            parts = [ChunkStorageMetadata(Size(offsets), Size(sizes)) for offsets, sizes, _ in chunks]
            entries[name] = TensorStorageMetadata(TensorProperties(dtype=getattr(_C, dtype), requires_grad=requires_grad), Size(size), parts)
    return Metadata(entries, {name: tuple(path) for name, path in paths}, places, StorageMeta(checkpoint_id), "1.0.0")
