"""``deepspeed.ops``."""

from . import adam

__all__ = ["adam"]
