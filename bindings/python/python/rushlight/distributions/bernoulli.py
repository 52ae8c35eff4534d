"""Where PyTorch has ``Bernoulli``."""

from . import Bernoulli  # noqa: F401
