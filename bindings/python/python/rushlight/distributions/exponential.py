"""Where PyTorch has ``Exponential``."""

from . import Exponential  # noqa: F401
