"""Keypoint R-CNN: Faster R-CNN with key points for each box."""

from .... import nn
from ...ops import MultiScaleRoIAlign
from .backbone_utils import _resnet_fpn_extractor, detector
from .faster_rcnn import FasterRCNN, frozen


class KeypointRCNN(FasterRCNN):
    """The detector over a backbone."""

    def __init__(
        self, backbone, num_classes=None, min_size=None, *args, keypoint_roi_pool=None, keypoint_head=None, keypoint_predictor=None, num_keypoints=None, **kwargs,
    ):
        if num_keypoints is not None and keypoint_predictor is not None:
            raise ValueError("num_keypoints should be None when keypoint_predictor is specified")
        super().__init__(backbone, num_classes, (640, 672, 704, 736, 768, 800) if min_size is None else min_size, *args, **kwargs)
        self.roi_heads.keypoint_roi_pool = keypoint_roi_pool or MultiScaleRoIAlign(featmap_names=["0", "1", "2", "3"], output_size=14, sampling_ratio=2)
        self.roi_heads.keypoint_head = keypoint_head or KeypointRCNNHeads(backbone.out_channels, (512,) * 8)
        self.roi_heads.keypoint_predictor = keypoint_predictor or KeypointRCNNPredictor(512, num_keypoints or 17)


class KeypointRCNNHeads(nn.Sequential):
    """Convolutions."""

    def __init__(self, in_channels, layers):
        found, channels = [], in_channels
        for outputs in layers:
            found += [nn.Conv2d(channels, outputs, 3, stride=1, padding=1), nn.ReLU(inplace=True)]
            channels = outputs
        super().__init__(*found)
        for layer in self.children():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                nn.init.constant_(layer.bias, 0)


class KeypointRCNNPredictor(nn.Module):
    """Heat maps by a transposed convolution, twice as large."""

    def __init__(self, in_channels, num_keypoints):
        super().__init__()
        self.kps_score_lowres = nn.ConvTranspose2d(in_channels, num_keypoints, 4, stride=2, padding=1)
        nn.init.kaiming_normal_(self.kps_score_lowres.weight, mode="fan_out", nonlinearity="relu")
        nn.init.constant_(self.kps_score_lowres.bias, 0)
        self.up_scale, self.out_channels = 2, num_keypoints

    def forward(self, x):
        return nn.functional.interpolate(self.kps_score_lowres(x), scale_factor=float(self.up_scale), mode="bilinear", align_corners=False, recompute_scale_factor=False)


def _resnet(is_trained, trained, backbone, classes, pretrained_backbone, num_keypoints=None, **kwargs):
    body = _resnet_fpn_extractor(backbone(norm_layer=frozen(is_trained)), trained)
    return KeypointRCNN(body, classes, num_keypoints=num_keypoints or 17, **kwargs)


__all__ = ["KeypointRCNN", *detector(globals(), "keypointrcnn_resnet50_fpn", "resnet50", (5, 3), _resnet)]
