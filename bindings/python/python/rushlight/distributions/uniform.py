"""Where PyTorch has ``Uniform``."""

from . import Uniform  # noqa: F401
