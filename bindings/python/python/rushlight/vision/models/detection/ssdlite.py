"""SSDlite: SSD with separable convolutions, over MobileNetV3."""

from collections import OrderedDict
from functools import partial

from .... import nn
from ...ops import Conv2dNormActivation
from . import _utils as det_utils
from .anchor_utils import DefaultBoxGenerator
from .backbone_utils import detector, freeze, stages_of
from .ssd import SSD, SSDScoringHead


def _prediction_block(in_channels, out_channels, kernel_size, norm_layer):
    return nn.Sequential(
        Conv2dNormActivation(in_channels, in_channels, kernel_size=kernel_size, groups=in_channels, norm_layer=norm_layer, activation_layer=nn.ReLU6),
        nn.Conv2d(in_channels, out_channels, 1),
    )


def _extra_block(in_channels, out_channels, norm_layer):
    middle = out_channels // 2
    conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.ReLU6)
    return nn.Sequential(
        conv(in_channels, middle, kernel_size=1), conv(middle, middle, kernel_size=3, stride=2, groups=middle), conv(middle, out_channels, kernel_size=1),
    )


def _normal_init(conv):
    for layer in conv.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, mean=0.0, std=0.03)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, 0.0)


def _predictors(in_channels, num_anchors, columns, norm_layer):
    made = nn.ModuleList([_prediction_block(c, columns * a, 3, norm_layer) for c, a in zip(in_channels, num_anchors)])
    _normal_init(made)
    return made


class SSDLiteClassificationHead(SSDScoringHead):
    """Scores of classes."""

    def __init__(self, in_channels, num_anchors, num_classes, norm_layer):
        super().__init__(_predictors(in_channels, num_anchors, num_classes, norm_layer), num_classes)


class SSDLiteRegressionHead(SSDScoringHead):
    """Codes of boxes."""

    def __init__(self, in_channels, num_anchors, norm_layer):
        super().__init__(_predictors(in_channels, num_anchors, 4, norm_layer), 4)


class SSDLiteHead(nn.Module):
    """Both heads."""

    def __init__(self, in_channels, num_anchors, num_classes, norm_layer):
        super().__init__()
        self.classification_head = SSDLiteClassificationHead(in_channels, num_anchors, num_classes, norm_layer)
        self.regression_head = SSDLiteRegressionHead(in_channels, num_anchors, norm_layer)

    def forward(self, x):
        return {"bbox_regression": self.regression_head(x), "cls_logits": self.classification_head(x)}


class SSDLiteFeatureExtractorMobileNet(nn.Module):
    """Maps of a MobileNet, the first within the block ``c4_pos``, and of further convolutions."""

    def __init__(self, backbone, c4_pos, norm_layer, width_mult=1.0, min_depth=16):
        super().__init__()
        if backbone[c4_pos].use_res_connect:
            raise ValueError("backbone[c4_pos].use_res_connect should be False")
        block = backbone[c4_pos].block
        self.features = nn.Sequential(nn.Sequential(*backbone[:c4_pos], block[0]), nn.Sequential(block[1:], *backbone[c4_pos + 1 :]))
        widths = [backbone[-1].out_channels, *(max(min_depth, int(depth * width_mult)) for depth in (512, 256, 256, 128))]
        self.extra = nn.ModuleList([_extra_block(a, b, norm_layer) for a, b in zip(widths, widths[1:])])
        _normal_init(self.extra)

    def forward(self, x):
        found = []
        for block in (*self.features, *self.extra):
            x = block(x)
            found.append(x)
        return OrderedDict((str(at), value) for at, value in enumerate(found))


def _mobilenet_extractor(backbone, trainable_layers, norm_layer):
    features = backbone.features
    stages = stages_of(features)
    freeze(features, stages, trainable_layers)
    return SSDLiteFeatureExtractorMobileNet(features, stages[-2], norm_layer)


def _mobilenet(is_trained, trained, backbone, classes, pretrained_backbone, norm_layer=None, **kwargs):
    size = (320, 320)
    if "size" in kwargs:
        raise TypeError("ssdlite320_mobilenet_v3_large: the size of the model is fixed; build SSD with another size")
    norm_layer = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.03)
    # Published weights of the classifier are of the whole tail; the detector's own are of the reduced one.
    body = _mobilenet_extractor(backbone(norm_layer=norm_layer, reduced_tail=not pretrained_backbone), trained, norm_layer)
    anchors = DefaultBoxGenerator([[2, 3] for _ in range(6)], min_ratio=0.2, max_ratio=0.95)
    channels, counts = det_utils.retrieve_out_channels(body, size), anchors.num_anchors_per_location()
    if len(channels) != len(counts):
        raise ValueError(f"The backbone gives {len(channels)} maps, but there are anchors for {len(counts)}")
    defaults = {
        "score_thresh": 0.001, "nms_thresh": 0.55, "detections_per_img": 300, "topk_candidates": 300, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    }
    return SSD(body, anchors, size, classes, head=SSDLiteHead(channels, counts, classes, norm_layer), **{**defaults, **kwargs})


__all__ = detector(globals(), "ssdlite320_mobilenet_v3_large", "mobilenet_v3_large", (6, 6), _mobilenet)
