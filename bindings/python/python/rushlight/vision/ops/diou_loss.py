"""``torchvision.ops.diou_loss``."""

from .losses import distance_box_iou_loss

__all__ = ["distance_box_iou_loss"]
