"""``torch.cuda.amp.autocast_mode``: ``autocast`` for a GPU."""

from ... import amp as _amp
from ...amp import custom_bwd, custom_fwd

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(_amp.autocast):
    """``torch.amp.autocast("cuda", …)``."""

    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        super().__init__("cuda", dtype, enabled, cache_enabled)
