"""LR-ASPP: a light head for MobileNetV3."""

from collections import OrderedDict

from .... import nn
from .._utils import IntermediateLayerGetter
from ._utils import segmentation_model


class LRASPPHead(nn.Module):
    """Two maps, the coarse one gated by its mean."""

    def __init__(self, low_channels, high_channels, num_classes, inter_channels):
        super().__init__()
        self.cbr = nn.Sequential(nn.Conv2d(high_channels, inter_channels, 1, bias=False), nn.BatchNorm2d(inter_channels), nn.ReLU(inplace=True))
        self.scale = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(high_channels, inter_channels, 1, bias=False), nn.Sigmoid())
        self.low_classifier, self.high_classifier = nn.Conv2d(low_channels, num_classes, 1), nn.Conv2d(inter_channels, num_classes, 1)

    def forward(self, input):
        low, high = input["low"], input["high"]
        x = self.cbr(high) * self.scale(high)
        x = nn.functional.interpolate(x, size=low.shape[-2:], mode="bilinear", align_corners=False)
        return self.low_classifier(low) + self.high_classifier(x)


class LRASPP(nn.Module):
    """The whole network."""

    def __init__(self, backbone, low_channels, high_channels, num_classes, inter_channels=128):
        super().__init__()
        self.backbone, self.classifier = backbone, LRASPPHead(low_channels, high_channels, num_classes, inter_channels)

    def forward(self, input):
        out = self.classifier(self.backbone(input))
        return OrderedDict(out=nn.functional.interpolate(out, size=input.shape[-2:], mode="bilinear", align_corners=False))


def _make(parts, classes, aux, **kwargs):
    features = parts[0]
    stages = [0] + [i for i, block in enumerate(features.values()) if getattr(block, "_is_cn", False)] + [len(features) - 1]
    low, high = stages[-4], stages[-1]
    channels = [features[str(at)].out_channels for at in (low, high)]
    features = IntermediateLayerGetter(nn.Sequential(*features.values()), {str(low): "low", str(high): "high"})
    return LRASPP(features, *channels, classes, **kwargs)


__all__ = ["LRASPP", *segmentation_model(globals(), "lraspp_mobilenet_v3_large", "mobilenet_v3_large", _make)]
