"""MobileNetV2: inverted residual blocks of a 1x1 expansion, a depthwise convolution and a 1x1 projection."""

from ... import _C, nn
from ..ops.misc import Conv2dNormActivation
from ._api import builders
from ._utils import _make_divisible, init_convolutions

# Expansion, channels, blocks, stride of each stage.
_SETTING = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2], [6, 320, 1, 1]]


def _conv(inputs, outputs, kernel_size=3, stride=1, groups=1, norm_layer=nn.BatchNorm2d):
    return Conv2dNormActivation(inputs, outputs, kernel_size, stride, groups=groups, norm_layer=norm_layer, activation_layer=nn.ReLU6)


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
        self.out_channels, self._is_cn = oup, stride > 1

    def forward(self, x):
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """The whole network."""

    def __init__(self, num_classes=1000, width_mult=1.0, inverted_residual_setting=None, round_nearest=8, block=None, norm_layer=None, dropout=0.2):
        super().__init__()
        block, norm_layer = block or InvertedResidual, norm_layer or nn.BatchNorm2d
        channels = _make_divisible(32 * width_mult, round_nearest)
        self.last_channel = _make_divisible(1280 * max(1.0, width_mult), round_nearest)
        features = [_conv(3, channels, stride=2, norm_layer=norm_layer)]
        for widening, width, blocks, stride in inverted_residual_setting or _SETTING:
            outputs = _make_divisible(width * width_mult, round_nearest)
            for i in range(blocks):
                features.append(block(channels, outputs, stride if i == 0 else 1, widening, norm_layer))
                channels = outputs
        features.append(_conv(channels, self.last_channel, 1, norm_layer=norm_layer))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(p=dropout), nn.Linear(self.last_channel, num_classes))

        def linear(layer):
            nn.init.normal_(layer.weight, 0, 0.01)
            nn.init.zeros_(layer.bias)

        init_convolutions(self, nonlinearity="leaky_relu", linear=linear)

    def forward(self, x):
        x = nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(_C._torch.flatten(x, 1))


def _make(_, **kwargs):
    return MobileNetV2(**kwargs)


__all__ = ["MobileNetV2", *builders(globals(), {"mobilenet_v2": None}, _make)]
