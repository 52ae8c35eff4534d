"""Where PyTorch has ``Normal``."""

from . import Normal  # noqa: F401
