"""Where PyTorch has Adadelta."""

from .rmsprop import Adadelta

__all__ = ["Adadelta"]
