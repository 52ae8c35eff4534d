"""The debug level of ``torch.distributed``."""

import enum
import os

__all__ = ["DebugLevel", "get_debug_level", "set_debug_level", "set_debug_level_from_env"]


class DebugLevel(enum.IntEnum):
    """PyTorch's levels. Ranks always compare their collectives here, which PyTorch does at ``DETAIL``."""

    OFF = 0
    INFO = 1
    DETAIL = 2


_level = None


def set_debug_level(level):
    """Sets the level."""
    global _level
    _level = DebugLevel(level)


def set_debug_level_from_env():
    """Sets the level by TORCH_DISTRIBUTED_DEBUG: OFF, INFO or DETAIL."""
    text = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "") or "OFF"
    if text not in DebugLevel.__members__:
        raise RuntimeError(f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL, not {text}")
    set_debug_level(DebugLevel[text])


def get_debug_level():
    """The level: set by the program, or by TORCH_DISTRIBUTED_DEBUG."""
    if _level is None:
        set_debug_level_from_env()
    return _level
