"""``torch.cpu.amp.grad_scaler``: ``GradScaler`` for the CPU."""

from ... import amp as _amp

__all__ = ["GradScaler"]


class GradScaler(_amp.GradScaler):
    """``torch.amp.GradScaler("cpu", …)``."""

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
