"""Where PyTorch has Adagrad."""

from .rmsprop import Adagrad

__all__ = ["Adagrad"]
