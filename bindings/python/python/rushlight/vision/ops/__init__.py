"""``torchvision.ops``: boxes, and layers shared by models."""

from .. import _absent_ops
from .boxes import (
    batched_nms,
    box_area,
    box_convert,
    box_iou,
    clip_boxes_to_image,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    masks_to_boxes,
    nms,
    remove_small_boxes,
)
from .losses import sigmoid_focal_loss
from .misc import MLP, Conv2dNormActivation, Conv3dNormActivation, FrozenBatchNorm2d, Permute, SqueezeExcitation
from .stochastic_depth import StochasticDepth, stochastic_depth

__all__ = [
    "Conv2dNormActivation", "Conv3dNormActivation", "FrozenBatchNorm2d", "MLP", "Permute", "SqueezeExcitation", "StochasticDepth", "batched_nms", "box_area",
    "box_convert", "box_iou", "clip_boxes_to_image", "complete_box_iou", "distance_box_iou", "generalized_box_iou", "masks_to_boxes", "nms",
    "remove_small_boxes", "sigmoid_focal_loss", "stochastic_depth",
]

_absent_ops.fill(globals())
