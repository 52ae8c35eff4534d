"""Detectors of two stages: proposals, then heads on the regions they name."""

from collections import OrderedDict

from .... import _C, nn
from ._utils import check_targets


class GeneralizedRCNN(nn.Module):
    """A backbone, a network of proposals and heads."""

    def __init__(self, backbone, rpn, roi_heads, transform):
        super().__init__()
        self.transform, self.backbone, self.rpn, self.roi_heads = transform, backbone, rpn, roi_heads

    def forward(self, images, targets=None):
        if self.training:
            check_targets(targets)
        sizes = [tuple(image.shape[-2:]) for image in images]
        images, targets = self.transform(images, targets)
        if targets is not None:
            check_targets(targets)
        features = self.backbone(images.tensors)
        if isinstance(features, _C.Tensor):
            features = OrderedDict([("0", features)])
        proposals, losses = self.rpn(images, features, targets)
        found, more = self.roi_heads(features, proposals, images.image_sizes, targets)
        if self.training:
            return {**more, **losses}
        return self.transform.postprocess(found, images.image_sizes, sizes)
