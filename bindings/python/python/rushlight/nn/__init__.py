"""Neural networks: ``torch.nn``."""

from . import functional  # noqa: F401
