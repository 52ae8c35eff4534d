"""Where PyTorch has ``infer_schema``."""

from ..library import infer_schema  # noqa: F401
