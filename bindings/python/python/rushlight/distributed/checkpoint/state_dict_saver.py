"""PyTorch's place of ``save``."""

from ._save import AsyncCheckpointerType, AsyncSaveResponse, async_save, save, save_state_dict

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]
