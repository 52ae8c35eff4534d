"""``torchvision.ops.roi_align``."""

from .regions import RoIAlign, roi_align

__all__ = ["RoIAlign", "roi_align"]
