"""``torch.cpu.amp.autocast_mode``: ``autocast`` for the CPU."""

from ... import _C
from ... import amp as _amp

__all__ = ["autocast"]


class autocast(_amp.autocast):
    """``torch.amp.autocast("cpu", …)``."""

    def __init__(self, enabled=True, dtype=_C.bfloat16, cache_enabled=True):
        super().__init__("cpu", dtype, enabled, cache_enabled)
