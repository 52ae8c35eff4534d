"""``torchvision.ops.roi_pool``."""

from .regions import RoIPool, roi_pool

__all__ = ["RoIPool", "roi_pool"]
