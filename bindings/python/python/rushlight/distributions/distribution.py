"""Where PyTorch has ``Distribution``."""

from . import Distribution  # noqa: F401
