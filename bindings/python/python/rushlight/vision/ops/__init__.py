"""``torchvision.ops``: boxes and regions, and layers shared by models."""

# Some modules have a function's name: the functions have the names.
from . import ciou_loss, diou_loss, focal_loss, giou_loss, ps_roi_align, ps_roi_pool, roi_align, roi_pool  # noqa: F401
from .boxes import *  # noqa: F403
from .boxes import __all__ as _boxes
from .deform_conv import DeformConv2d, deform_conv2d
from .drop_block import DropBlock2d, DropBlock3d, drop_block2d, drop_block3d
from .feature_pyramid_network import FeaturePyramidNetwork
from .losses import complete_box_iou_loss, distance_box_iou_loss, generalized_box_iou_loss, sigmoid_focal_loss
from .misc import MLP, Conv2dNormActivation, Conv3dNormActivation, FrozenBatchNorm2d, Permute, SqueezeExcitation
from .poolers import MultiScaleRoIAlign
from .regions import *  # noqa: F403
from .regions import __all__ as _regions
from .stochastic_depth import StochasticDepth, stochastic_depth

__all__ = [
    "Conv2dNormActivation", "Conv3dNormActivation", "DeformConv2d", "DropBlock2d", "DropBlock3d", "FeaturePyramidNetwork", "FrozenBatchNorm2d", "MLP",
    "MultiScaleRoIAlign", "Permute", "SqueezeExcitation", "StochasticDepth", "complete_box_iou_loss", "deform_conv2d", "distance_box_iou_loss", "drop_block2d",
    "drop_block3d", "generalized_box_iou_loss", "sigmoid_focal_loss", "stochastic_depth", *_boxes, *_regions,
]
