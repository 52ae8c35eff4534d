"""``deepspeed.runtime``."""

from . import base_optimizer, engine, lr_schedules

__all__ = ["base_optimizer", "engine", "lr_schedules"]
