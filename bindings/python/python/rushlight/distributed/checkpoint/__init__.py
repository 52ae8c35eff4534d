"""``torch.distributed.checkpoint``: each rank writes its parts once, one commit makes the whole valid, and any number of ranks reads it in parts of its own.

Files are PyTorch's, both ways. Reading runs no code of a pickle: the core reads ``.metadata`` and the tensors, and other values are read as by
``torch.load(weights_only=True)``.
"""

from ._save import AsyncSaveResponse, async_save, save, save_state_dict
from ._load import load, load_state_dict
from .api import CheckpointException
from .filesystem import FileSystemReader, FileSystemWriter
from .hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from .metadata import BytesStorageMetadata, ChunkStorageMetadata, Metadata, TensorStorageMetadata
from .planner import DefaultLoadPlanner, DefaultSavePlanner, LoadPlanner, SavePlanner
from .stateful import Stateful
from .storage import StorageReader, StorageWriter

__all__ = [
    "AsyncSaveResponse",
    "BytesStorageMetadata",
    "CheckpointException",
    "ChunkStorageMetadata",
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "FileSystemReader",
    "FileSystemWriter",
    "HuggingFaceStorageReader",
    "HuggingFaceStorageWriter",
    "LoadPlanner",
    "Metadata",
    "SavePlanner",
    "Stateful",
    "StorageReader",
    "StorageWriter",
    "TensorStorageMetadata",
    "async_save",
    "load",
    "load_state_dict",
    "save",
    "save_state_dict",
]
