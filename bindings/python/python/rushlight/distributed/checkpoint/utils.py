"""``torch.distributed.checkpoint.utils``: where PyTorch has the error of a checkpoint, too."""

from .api import CheckpointException

__all__ = ["CheckpointException"]
