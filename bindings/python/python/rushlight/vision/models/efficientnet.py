"""EfficientNet and EfficientNetV2: inverted residuals scaled in width, depth and resolution."""

import copy
import math
from functools import partial

from ... import _C, nn
from ..ops.misc import Conv2dNormActivation, SqueezeExcitation
from ..ops.stochastic_depth import StochasticDepth
from ._api import builders
from ._utils import _make_divisible

#: Stages of the first family: expansion, kernel, stride, input and output channels, layers.
_STAGES = [
    (1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3), (6, 5, 1, 80, 112, 3), (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1),
]
#: The second family: stages of fused blocks, then of others.
_V2 = {
    "s": ([(1, 3, 1, 24, 24, 2), (4, 3, 2, 24, 48, 4), (4, 3, 2, 48, 64, 4)], [(4, 3, 2, 64, 128, 6), (6, 3, 1, 128, 160, 9), (6, 3, 2, 160, 256, 15)]),
    "m": (
        [(1, 3, 1, 24, 24, 3), (4, 3, 2, 24, 48, 5), (4, 3, 2, 48, 80, 5)],
        [(4, 3, 2, 80, 160, 7), (6, 3, 1, 160, 176, 14), (6, 3, 2, 176, 304, 18), (6, 3, 1, 304, 512, 5)],
    ),
    "l": (
        [(1, 3, 1, 32, 32, 4), (4, 3, 2, 32, 64, 7), (4, 3, 2, 64, 96, 7)],
        [(4, 3, 2, 96, 192, 10), (6, 3, 1, 192, 224, 19), (6, 3, 2, 224, 384, 25), (6, 3, 1, 384, 640, 7)],
    ),
}
#: Factors of width and depth, or the size of the second family; dropout; epsilon and momentum of norms if not the
#: defaults.
_ARCHS = {
    "efficientnet_b0": (1.0, 1.0, 0.2, None), "efficientnet_b1": (1.0, 1.1, 0.2, None), "efficientnet_b2": (1.1, 1.2, 0.3, None),
    "efficientnet_b3": (1.2, 1.4, 0.3, None), "efficientnet_b4": (1.4, 1.8, 0.4, None), "efficientnet_b5": (1.6, 2.2, 0.4, (0.001, 0.01)),
    "efficientnet_b6": (1.8, 2.6, 0.5, (0.001, 0.01)), "efficientnet_b7": (2.0, 3.1, 0.5, (0.001, 0.01)), "efficientnet_v2_s": ("s", None, 0.2, (0.001, 0.1)),
    "efficientnet_v2_m": ("m", None, 0.3, (0.001, 0.1)), "efficientnet_v2_l": ("l", None, 0.4, (0.001, 0.1)),
}


class _MBConvConfig:
    """Sizes of one stage."""

    def __init__(self, expand_ratio, kernel, stride, input_channels, out_channels, num_layers, block):
        self.expand_ratio, self.kernel, self.stride = expand_ratio, kernel, stride
        self.input_channels, self.out_channels, self.num_layers, self.block = input_channels, out_channels, num_layers, block

    @staticmethod
    def adjust_channels(channels, width_mult, min_value=None):
        return _make_divisible(channels * width_mult, 8, min_value)


class MBConvConfig(_MBConvConfig):
    """Sizes of a stage of ``MBConv`` blocks."""

    def __init__(self, expand_ratio, kernel, stride, input_channels, out_channels, num_layers, width_mult=1.0, depth_mult=1.0, block=None):
        inputs, outputs = self.adjust_channels(input_channels, width_mult), self.adjust_channels(out_channels, width_mult)
        super().__init__(expand_ratio, kernel, stride, inputs, outputs, self.adjust_depth(num_layers, depth_mult), block or MBConv)

    @staticmethod
    def adjust_depth(num_layers, depth_mult):
        return int(math.ceil(num_layers * depth_mult))


class FusedMBConvConfig(_MBConvConfig):
    """Sizes of a stage of ``FusedMBConv`` blocks."""

    def __init__(self, expand_ratio, kernel, stride, input_channels, out_channels, num_layers, block=None):
        super().__init__(expand_ratio, kernel, stride, input_channels, out_channels, num_layers, block or FusedMBConv)


class _Block(nn.Module):
    """A branch ``block`` that stochastic depth may drop, with a residual connection if the shapes agree."""

    def __init__(self, cnf, stochastic_depth_prob, layers):
        super().__init__()
        if not 1 <= cnf.stride <= 2:
            raise ValueError("illegal stride value")
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.out_channels = cnf.out_channels

    def forward(self, input):
        found = self.block(input)
        return self.stochastic_depth(found) + input if self.use_res_connect else found


class MBConv(_Block):
    """An expansion, a depthwise convolution, squeeze and excitation, a projection."""

    def __init__(self, cnf, stochastic_depth_prob, norm_layer, se_layer=SqueezeExcitation):
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        wide = cnf.adjust_channels(cnf.input_channels, cnf.expand_ratio)
        layers = [] if wide == cnf.input_channels else [conv(cnf.input_channels, wide, kernel_size=1)]
        layers.append(conv(wide, wide, kernel_size=cnf.kernel, stride=cnf.stride, groups=wide))
        layers.append(se_layer(wide, max(1, cnf.input_channels // 4), activation=partial(nn.SiLU, inplace=True)))
        layers.append(conv(wide, cnf.out_channels, kernel_size=1, activation_layer=None))
        super().__init__(cnf, stochastic_depth_prob, layers)


class FusedMBConv(_Block):
    """An ordinary convolution that expands, and a projection; one convolution if nothing is expanded."""

    def __init__(self, cnf, stochastic_depth_prob, norm_layer):
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        wide = cnf.adjust_channels(cnf.input_channels, cnf.expand_ratio)
        first = partial(conv, cnf.input_channels, kernel_size=cnf.kernel, stride=cnf.stride)
        layers = [first(cnf.out_channels)] if wide == cnf.input_channels else [first(wide), conv(wide, cnf.out_channels, kernel_size=1, activation_layer=None)]
        super().__init__(cnf, stochastic_depth_prob, layers)


class EfficientNet(nn.Module):
    """The whole network."""

    def __init__(self, inverted_residual_setting, dropout, stochastic_depth_prob=0.2, num_classes=1000, norm_layer=None, last_channel=None):
        super().__init__()
        if not inverted_residual_setting:
            raise ValueError("The inverted_residual_setting should not be empty")
        if not all(isinstance(s, _MBConvConfig) for s in inverted_residual_setting):
            raise TypeError("The inverted_residual_setting should be List[MBConvConfig]")
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer or nn.BatchNorm2d, activation_layer=nn.SiLU)
        layers = [conv(3, inverted_residual_setting[0].input_channels, kernel_size=3, stride=2)]
        total, done = sum(cnf.num_layers for cnf in inverted_residual_setting), 0
        for cnf in inverted_residual_setting:
            stage, cnf = [], copy.copy(cnf)
            for _ in range(cnf.num_layers):
                stage.append(cnf.block(cnf, stochastic_depth_prob * done / total, norm_layer or nn.BatchNorm2d))
                cnf.input_channels, cnf.stride = cnf.out_channels, 1
                done += 1
            layers.append(nn.Sequential(*stage))
        inputs = inverted_residual_setting[-1].out_channels
        outputs = 4 * inputs if last_channel is None else last_channel
        self.features = nn.Sequential(*layers, conv(inputs, outputs, kernel_size=1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(p=dropout, inplace=True), nn.Linear(outputs, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                bound = 1.0 / math.sqrt(module.out_features)
                nn.init.uniform_(module.weight, -bound, bound)
                nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.classifier(_C._torch.flatten(self.avgpool(self.features(x)), 1))


def _efficientnet_conf(arch, **kwargs):
    """Stages of a network, and the width of its last convolution."""
    width, depth = _ARCHS[arch][:2]
    if isinstance(width, str):
        fused, others = _V2[width]
        return [FusedMBConvConfig(*row) for row in fused] + [MBConvConfig(*row) for row in others], 1280
    return [MBConvConfig(*row, width_mult=kwargs.get("width_mult", width), depth_mult=kwargs.get("depth_mult", depth)) for row in _STAGES], None


def _make(arch, dropout=None, norm_layer=None, **kwargs):
    setting, last = _efficientnet_conf(arch)
    default, norm = _ARCHS[arch][2:]
    if norm_layer is None and norm is not None:
        norm_layer = partial(nn.BatchNorm2d, eps=norm[0], momentum=norm[1])
    return EfficientNet(setting, default if dropout is None else dropout, last_channel=last, norm_layer=norm_layer, **kwargs)


__all__ = ["EfficientNet", *builders(globals(), {name: name for name in _ARCHS}, _make)]
