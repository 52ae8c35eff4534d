"""Unsupported ops of torchvision."""

from .. import _absent

_NAMES = (
    "DeformConv2d DropBlock2d DropBlock3d FeaturePyramidNetwork MultiScaleRoIAlign PSRoIAlign PSRoIPool RoIAlign RoIPool complete_box_iou_loss deform_conv2d "
    "distance_box_iou_loss drop_block2d drop_block3d generalized_box_iou_loss ps_roi_align ps_roi_pool roi_align roi_pool"
)


def fill(namespace):
    """Adds their names to ``torchvision.ops``."""
    _absent.fill(namespace, "torchvision.ops", "detection's kernels are not part of this version", _NAMES)
