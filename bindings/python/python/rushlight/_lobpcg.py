"""``torch._lobpcg``: where PyTorch defines ``lobpcg``."""

from . import lobpcg  # noqa: F401
