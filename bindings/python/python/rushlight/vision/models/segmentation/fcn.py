"""FCN: a convolution that labels the pixels of a backbone's map."""

from .... import nn
from ._utils import _SimpleSegmentationModel, segmentation_model


class FCN(_SimpleSegmentationModel):
    """A fully convolutional network."""


class FCNHead(nn.Sequential):
    """A 3x3 convolution to a quarter of the channels, then one to the classes."""

    def __init__(self, in_channels, channels):
        inner = in_channels // 4
        super().__init__(
            nn.Conv2d(in_channels, inner, 3, padding=1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(), nn.Dropout(0.1), nn.Conv2d(inner, channels, 1),
        )


def _make(parts, classes, aux):
    backbone, last, inner = parts
    return FCN(backbone, FCNHead(last, classes), FCNHead(inner, classes) if aux else None)


__all__ = ["FCN"]
for _arch in ("resnet50", "resnet101"):
    __all__ += segmentation_model(globals(), f"fcn_{_arch}", _arch, _make)
