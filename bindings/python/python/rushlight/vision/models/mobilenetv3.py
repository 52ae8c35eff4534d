"""MobileNetV3: inverted residuals with squeeze and excitation and hard activations."""

from functools import partial

from ... import _C, nn
from ..ops.misc import Conv2dNormActivation
from ..ops.misc import SqueezeExcitation as SElayer
from ._api import builders
from ._utils import _make_divisible, init_convolutions

#: Kernel, expanded and output channels, squeeze and excitation, activation, stride of each block. Width of the last
#: layers.
_LARGE = [
    (3, 16, 16, False, "RE", 1), (3, 64, 24, False, "RE", 2), (3, 72, 24, False, "RE", 1), (5, 72, 40, True, "RE", 2), (5, 120, 40, True, "RE", 1),
    (5, 120, 40, True, "RE", 1), (3, 240, 80, False, "HS", 2), (3, 200, 80, False, "HS", 1), (3, 184, 80, False, "HS", 1), (3, 184, 80, False, "HS", 1),
    (3, 480, 112, True, "HS", 1), (3, 672, 112, True, "HS", 1), (5, 672, 160, True, "HS", 2), (5, 960, 160, True, "HS", 1), (5, 960, 160, True, "HS", 1),
]
_SMALL = [
    (3, 16, 16, True, "RE", 2), (3, 72, 24, False, "RE", 2), (3, 88, 24, False, "RE", 1), (5, 96, 40, True, "HS", 2), (5, 240, 40, True, "HS", 1),
    (5, 240, 40, True, "HS", 1), (5, 120, 48, True, "HS", 1), (5, 144, 48, True, "HS", 1), (5, 288, 96, True, "HS", 2), (5, 576, 96, True, "HS", 1),
    (5, 576, 96, True, "HS", 1),
]
_ARCHS = {"mobilenet_v3_large": (_LARGE, 1280), "mobilenet_v3_small": (_SMALL, 1024)}


class InvertedResidualConfig:
    """Sizes of one block."""

    def __init__(self, input_channels, kernel, expanded_channels, out_channels, use_se, activation, stride, dilation, width_mult):
        self.input_channels, self.expanded_channels, self.out_channels = (
            self.adjust_channels(c, width_mult) for c in (input_channels, expanded_channels, out_channels)
        )
        self.kernel, self.use_se, self.use_hs, self.stride, self.dilation = kernel, use_se, activation == "HS", stride, dilation

    @staticmethod
    def adjust_channels(channels, width_mult):
        return _make_divisible(channels * width_mult, 8)


class InvertedResidual(nn.Module):
    """An expansion, a depthwise convolution, squeeze and excitation, a projection."""

    def __init__(self, cnf, norm_layer, se_layer=partial(SElayer, scale_activation=nn.Hardsigmoid)):
        super().__init__()
        if not 1 <= cnf.stride <= 2:
            raise ValueError("illegal stride value")
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.Hardswish if cnf.use_hs else nn.ReLU)
        wide = cnf.expanded_channels
        layers = [] if wide == cnf.input_channels else [conv(cnf.input_channels, wide, kernel_size=1)]
        stride = 1 if cnf.dilation > 1 else cnf.stride
        layers.append(conv(wide, wide, kernel_size=cnf.kernel, stride=stride, dilation=cnf.dilation, groups=wide))
        if cnf.use_se:
            layers.append(se_layer(wide, _make_divisible(wide // 4, 8)))
        layers.append(conv(wide, cnf.out_channels, kernel_size=1, activation_layer=None))
        self.block = nn.Sequential(*layers)
        self.out_channels, self._is_cn = cnf.out_channels, cnf.stride > 1

    def forward(self, input):
        return self.block(input) + input if self.use_res_connect else self.block(input)


class MobileNetV3(nn.Module):
    """The whole network."""

    def __init__(self, inverted_residual_setting, last_channel, num_classes=1000, block=None, norm_layer=None, dropout=0.2, **kwargs):
        super().__init__()
        if not inverted_residual_setting:
            raise ValueError("The inverted_residual_setting should not be empty")
        if not all(isinstance(s, InvertedResidualConfig) for s in inverted_residual_setting):
            raise TypeError("The inverted_residual_setting should be List[InvertedResidualConfig]")
        block = block or InvertedResidual
        norm_layer = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.Hardswish)
        last = inverted_residual_setting[-1].out_channels
        blocks = [block(cnf, norm_layer) for cnf in inverted_residual_setting]
        self.features = nn.Sequential(
            conv(3, inverted_residual_setting[0].input_channels, kernel_size=3, stride=2), *blocks, conv(last, 6 * last, kernel_size=1),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * last, last_channel), nn.Hardswish(inplace=True), nn.Dropout(p=dropout, inplace=True), nn.Linear(last_channel, num_classes),
        )

        def linear(layer):
            nn.init.normal_(layer.weight, 0, 0.01)
            nn.init.zeros_(layer.bias)

        init_convolutions(self, nonlinearity="leaky_relu", linear=linear)

    def forward(self, x):
        return self.classifier(_C._torch.flatten(self.avgpool(self.features(x)), 1))


def _mobilenet_v3_conf(arch, width_mult=1.0, reduced_tail=False, dilated=False, **kwargs):
    """Sizes of a network: ``reduced_tail`` halves its last blocks, ``dilated`` keeps their resolution."""
    if arch not in _ARCHS:
        raise ValueError(f"Unsupported model type {arch}")
    rows, last = _ARCHS[arch]
    tail = len(rows) - 3
    found, channels = [], 16
    for at, (kernel, wide, outputs, squeezed, activation, stride) in enumerate(rows):
        if reduced_tail and at >= tail:
            # The first block of the tail expands what is still whole.
            wide, outputs = wide if at == tail else wide // 2, outputs // 2
        found.append(InvertedResidualConfig(channels, kernel, wide, outputs, squeezed, activation, stride, 2 if dilated and at >= tail else 1, width_mult))
        channels = outputs
    return found, InvertedResidualConfig.adjust_channels(last // (2 if reduced_tail else 1), width_mult)


def _make(arch, **kwargs):
    setting, last = _mobilenet_v3_conf(arch, **{k: kwargs.pop(k) for k in ("width_mult", "reduced_tail", "dilated") if k in kwargs})
    return MobileNetV3(setting, last, **kwargs)


__all__ = ["MobileNetV3", *builders(globals(), {name: name for name in _ARCHS}, _make)]
