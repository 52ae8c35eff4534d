"""Where PyTorch has NAdam."""

from .adam import NAdam

__all__ = ["NAdam"]
