"""``torch.cuda.amp``, the older interface of mixed precision."""

from .. import amp as _amp
from ..amp import custom_bwd, custom_fwd  # noqa: F401


class autocast(_amp.autocast):
    """``torch.amp.autocast("cuda", …)``."""

    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_amp.GradScaler):
    """``torch.amp.GradScaler("cuda", …)``."""

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
