"""Where PyTorch has ``Laplace``."""

from . import Laplace  # noqa: F401
