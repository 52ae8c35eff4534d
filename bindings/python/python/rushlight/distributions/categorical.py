"""Where PyTorch has ``Categorical``."""

from . import Categorical  # noqa: F401
