"""``deepspeed.runtime.lr_schedules``."""

from .._schedules import SCHEDULES, WarmupCosineLR, WarmupDecayLR, WarmupLR

__all__ = ["VALID_LR_SCHEDULES", "WarmupCosineLR", "WarmupDecayLR", "WarmupLR"]

#: Names of the schedules that a configuration may have.
VALID_LR_SCHEDULES = sorted(SCHEDULES)
