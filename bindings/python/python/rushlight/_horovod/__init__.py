"""``horovod``: its package for PyTorch, over ``torch.distributed``."""

from .runner import run  # noqa: F401
