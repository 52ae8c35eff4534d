"""``torchvision.ops.ciou_loss``."""

from .losses import complete_box_iou_loss

__all__ = ["complete_box_iou_loss"]
