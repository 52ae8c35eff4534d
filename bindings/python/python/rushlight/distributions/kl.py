"""Where PyTorch has ``kl_divergence``."""

from . import kl_divergence  # noqa: F401
