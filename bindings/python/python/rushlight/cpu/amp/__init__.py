"""``torch.cpu.amp``, the older interface of mixed precision."""

from .autocast_mode import autocast
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast"]
