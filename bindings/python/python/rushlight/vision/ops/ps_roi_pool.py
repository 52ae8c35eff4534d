"""``torchvision.ops.ps_roi_pool``."""

from .regions import PSRoIPool, ps_roi_pool

__all__ = ["PSRoIPool", "ps_roi_pool"]
