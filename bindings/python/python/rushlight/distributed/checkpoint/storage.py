"""Base classes of storages."""

__all__ = ["StorageReader", "StorageWriter"]


class StorageWriter:
    """Where a checkpoint is written. ``FileSystemWriter`` is the one that is supported."""


class StorageReader:
    """Where a checkpoint is read. ``FileSystemReader`` is the one that is supported."""
