"""``torchvision.ops.ps_roi_align``."""

from .regions import PSRoIAlign, ps_roi_align

__all__ = ["PSRoIAlign", "ps_roi_align"]
