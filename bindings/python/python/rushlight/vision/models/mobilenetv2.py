"""MobileNetV2: inverted residual blocks of a 1x1 expansion, a depthwise convolution and a 1x1 projection."""

from ... import _C, nn
from ._api import build, register, weights_enum

__all__ = ["MobileNetV2", "MobileNet_V2_Weights", "mobilenet_v2"]

MobileNet_V2_Weights = weights_enum("MobileNet_V2_Weights", "mobilenet_v2")

# Expansion, channels, blocks, stride of each stage.
_SETTING = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2], [6, 320, 1, 1]]


def _divisible(value, divisor=8):
    """The nearest multiple that is at most a tenth below."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


def _conv(inputs, outputs, kernel_size=3, stride=1, groups=1, norm_layer=nn.BatchNorm2d):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size, stride, (kernel_size - 1) // 2, groups=groups, bias=False), norm_layer(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """One block, with a residual connection if the shapes agree."""

    def __init__(self, inp, oup, stride, expand_ratio, norm_layer=None):
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        hidden = int(round(inp * expand_ratio))
        self.use_res_connect = stride == 1 and inp == oup
        layers = [] if expand_ratio == 1 else [_conv(inp, hidden, 1, norm_layer=norm_layer)]
        layers += [_conv(hidden, hidden, 3, stride, hidden, norm_layer), nn.Conv2d(hidden, oup, 1, 1, 0, bias=False), norm_layer(oup)]
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """The whole network."""

    def __init__(self, num_classes=1000, width_mult=1.0, inverted_residual_setting=None, round_nearest=8, block=None, norm_layer=None, dropout=0.2):
        super().__init__()
        block, norm_layer = block or InvertedResidual, norm_layer or nn.BatchNorm2d
        channels = _divisible(32 * width_mult, round_nearest)
        self.last_channel = _divisible(1280 * max(1.0, width_mult), round_nearest)
        features = [_conv(3, channels, stride=2, norm_layer=norm_layer)]
        for widening, width, blocks, stride in inverted_residual_setting or _SETTING:
            outputs = _divisible(width * width_mult, round_nearest)
            for i in range(blocks):
                features.append(block(channels, outputs, stride if i == 0 else 1, widening, norm_layer))
                channels = outputs
        features.append(_conv(channels, self.last_channel, 1, norm_layer=norm_layer))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(p=dropout), nn.Linear(self.last_channel, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x):
        x = nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(_C._torch.flatten(x, 1))


@register
def mobilenet_v2(*, weights=None, progress=True, **kwargs):
    """MobileNetV2 with torchvision's layers."""
    return build(MobileNetV2, "mobilenet_v2", weights, kwargs, progress)
