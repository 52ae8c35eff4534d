"""Where PyTorch has ``Independent``."""

from . import Independent  # noqa: F401
