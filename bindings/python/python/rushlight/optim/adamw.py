"""Where PyTorch has AdamW."""

from .adam import AdamW

__all__ = ["AdamW"]
