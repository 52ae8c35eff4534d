"""Where PyTorch has RAdam."""

from .adam import RAdam

__all__ = ["RAdam"]
