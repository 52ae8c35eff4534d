"""DeepLabV3: dilated convolutions of several rates side by side."""

from .... import _C, nn
from ._utils import _SimpleSegmentationModel, segmentation_model
from .fcn import FCNHead


class DeepLabV3(_SimpleSegmentationModel):
    """A network with atrous spatial pyramid pooling."""


def _conv(inputs, outputs, kernel=1, dilation=1):
    padding = dilation if kernel == 3 else 0
    return [nn.Conv2d(inputs, outputs, kernel, padding=padding, dilation=dilation, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


class ASPPConv(nn.Sequential):
    """A dilated convolution."""

    def __init__(self, in_channels, out_channels, dilation):
        super().__init__(*_conv(in_channels, out_channels, 3, dilation))


class ASPPPooling(nn.Sequential):
    """The mean of the whole map, spread over it."""

    def __init__(self, in_channels, out_channels):
        super().__init__(nn.AdaptiveAvgPool2d(1), *_conv(in_channels, out_channels))

    def forward(self, x):
        return nn.functional.interpolate(super().forward(x), size=x.shape[-2:], mode="bilinear", align_corners=False)


class ASPP(nn.Module):
    """Convolutions of several rates and the mean, joined and projected."""

    def __init__(self, in_channels, atrous_rates, out_channels=256):
        super().__init__()
        convs = [nn.Sequential(*_conv(in_channels, out_channels)), *(ASPPConv(in_channels, out_channels, rate) for rate in atrous_rates)]
        self.convs = nn.ModuleList([*convs, ASPPPooling(in_channels, out_channels)])
        self.project = nn.Sequential(*_conv(len(self.convs) * out_channels, out_channels), nn.Dropout(0.5))

    def forward(self, x):
        return self.project(_C._torch.cat([conv(x) for conv in self.convs], dim=1))


class DeepLabHead(nn.Sequential):
    """The classifier."""

    def __init__(self, in_channels, num_classes, atrous_rates=(12, 24, 36)):
        super().__init__(
            ASPP(in_channels, atrous_rates), nn.Conv2d(256, 256, 3, padding=1, bias=False), nn.BatchNorm2d(256), nn.ReLU(), nn.Conv2d(256, num_classes, 1),
        )


def _make(parts, classes, aux):
    backbone, last, inner = parts
    return DeepLabV3(backbone, DeepLabHead(last, classes), FCNHead(inner, classes) if aux else None)


__all__ = ["DeepLabV3"]
for _arch in ("resnet50", "resnet101", "mobilenet_v3_large"):
    __all__ += segmentation_model(globals(), f"deeplabv3_{_arch}", _arch, _make)
