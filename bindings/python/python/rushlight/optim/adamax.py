"""Where PyTorch has Adamax."""

from .adam import Adamax

__all__ = ["Adamax"]
