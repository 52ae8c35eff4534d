"""RegNet: residual bottlenecks whose widths follow a quantised line."""

import math
from collections import OrderedDict
from functools import partial

from ... import nn
from ..ops.misc import Conv2dNormActivation, SqueezeExcitation
from ._api import builders

#: Depth, first width, slope, quantisation step and group width; those named y have squeeze and excitation of a quarter.
_ARCHS = {
    "regnet_y_400mf": (16, 48, 27.89, 2.09, 8), "regnet_y_800mf": (14, 56, 38.84, 2.4, 16), "regnet_y_1_6gf": (27, 48, 20.71, 2.65, 24),
    "regnet_y_3_2gf": (21, 80, 42.63, 2.66, 24), "regnet_y_8gf": (17, 192, 76.82, 2.19, 56), "regnet_y_16gf": (18, 200, 106.23, 2.48, 112),
    "regnet_y_32gf": (20, 232, 115.89, 2.53, 232), "regnet_y_128gf": (27, 456, 160.83, 2.52, 264),
    "regnet_x_400mf": (22, 24, 24.48, 2.54, 16), "regnet_x_800mf": (16, 56, 35.73, 2.28, 16), "regnet_x_1_6gf": (18, 80, 34.01, 2.25, 24),
    "regnet_x_3_2gf": (25, 88, 26.31, 2.25, 48), "regnet_x_8gf": (23, 80, 49.56, 2.88, 120), "regnet_x_16gf": (22, 216, 55.59, 2.1, 128),
    "regnet_x_32gf": (23, 320, 69.86, 2.0, 168),
}


class SimpleStemIN(Conv2dNormActivation):
    """The first convolution."""

    def __init__(self, width_in, width_out, norm_layer, activation_layer):
        super().__init__(width_in, width_out, kernel_size=3, stride=2, norm_layer=norm_layer, activation_layer=activation_layer)


class BottleneckTransform(nn.Sequential):
    """1x1, grouped 3x3, squeeze and excitation, 1x1."""

    def __init__(self, width_in, width_out, stride, norm_layer, activation_layer, group_width, bottleneck_multiplier, se_ratio):
        wide = int(round(width_out * bottleneck_multiplier))
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=activation_layer)
        layers = OrderedDict(a=conv(width_in, wide, kernel_size=1), b=conv(wide, wide, kernel_size=3, stride=stride, groups=wide // group_width))
        if se_ratio:
            layers["se"] = SqueezeExcitation(wide, int(round(se_ratio * width_in)), activation=activation_layer)
        layers["c"] = conv(wide, width_out, kernel_size=1, activation_layer=None)
        super().__init__(layers)


class ResBottleneckBlock(nn.Module):
    """A bottleneck with a residual connection."""

    def __init__(self, width_in, width_out, stride, norm_layer, activation_layer, group_width=1, bottleneck_multiplier=1.0, se_ratio=None):
        super().__init__()
        same = width_in == width_out and stride == 1
        self.proj = None if same else Conv2dNormActivation(width_in, width_out, kernel_size=1, stride=stride, norm_layer=norm_layer, activation_layer=None)
        self.f = BottleneckTransform(width_in, width_out, stride, norm_layer, activation_layer, group_width, bottleneck_multiplier, se_ratio)
        self.activation = activation_layer(inplace=True)

    def forward(self, x):
        return self.activation((x if self.proj is None else self.proj(x)) + self.f(x))


class AnyStage(nn.Sequential):
    """Blocks of one width."""

    def __init__(
        self, width_in, width_out, stride, depth, block_constructor, norm_layer, activation_layer, group_width, bottleneck_multiplier, se_ratio=None, stage_index=0,
    ):
        super().__init__()
        for i in range(depth):
            block = block_constructor(
                width_out if i else width_in, width_out, 1 if i else stride, norm_layer, activation_layer, group_width, bottleneck_multiplier, se_ratio,
            )
            self.add_module(f"block{stage_index}-{i}", block)


class BlockParams:
    """Sizes of the stages."""

    def __init__(self, depths, widths, group_widths, bottleneck_multipliers, strides, se_ratio=None):
        self.depths, self.widths, self.group_widths = depths, widths, group_widths
        self.bottleneck_multipliers, self.strides, self.se_ratio = bottleneck_multipliers, strides, se_ratio

    @classmethod
    def from_init_params(cls, depth, w_0, w_a, w_m, group_width, bottleneck_multiplier=1.0, se_ratio=None, **kwargs):
        """Sizes from the line ``w_0 + w_a * block`` in steps of powers of ``w_m``."""
        if w_a < 0 or w_0 <= 0 or w_m <= 1 or w_0 % 8 != 0:
            raise ValueError("Invalid RegNet settings")
        widths = []
        for block in range(depth):
            power = round(math.log((w_0 + w_a * block) / w_0) / math.log(w_m))
            widths.append(int(round(w_0 * w_m**power / 8)) * 8)
        stages = sorted(set(widths))
        depths = [widths.count(w) for w in stages]
        groups = [min(group_width, int(w * bottleneck_multiplier)) for w in stages]
        wide = [max(g, int(w * bottleneck_multiplier + g / 2) // g * g) for w, g in zip(stages, groups)]
        # A multiple of the group is never more than a tenth below.
        wide = [v + g if v < 0.9 * w * bottleneck_multiplier else v for v, w, g in zip(wide, stages, groups)]
        count = len(stages)
        return cls(depths, [int(v / bottleneck_multiplier) for v in wide], groups, [bottleneck_multiplier] * count, [2] * count, se_ratio)

    def _get_expanded_params(self):
        return zip(self.widths, self.strides, self.depths, self.group_widths, self.bottleneck_multipliers)


class RegNet(nn.Module):
    """The whole network."""

    def __init__(self, block_params, num_classes=1000, stem_width=32, stem_type=None, block_type=None, norm_layer=None, activation=None):
        super().__init__()
        norm_layer, activation = norm_layer or nn.BatchNorm2d, activation or nn.ReLU
        self.stem = (stem_type or SimpleStemIN)(3, stem_width, norm_layer, activation)
        width, stages = stem_width, OrderedDict()
        for i, (outputs, stride, depth, group, multiplier) in enumerate(block_params._get_expanded_params(), 1):
            stages[f"block{i}"] = AnyStage(
                width, outputs, stride, depth, block_type or ResBottleneckBlock, norm_layer, activation, group, multiplier, block_params.se_ratio, stage_index=i,
            )
            width = outputs
        self.trunk_output = nn.Sequential(stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
                nn.init.normal_(module.weight, mean=0.0, std=math.sqrt(2.0 / fan_out))
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, mean=0.0, std=0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.fc(self.avgpool(self.trunk_output(self.stem(x))).flatten(start_dim=1))


def _make(name, norm_layer=None, **kwargs):
    params = BlockParams.from_init_params(*_ARCHS[name], se_ratio=0.25 if name.startswith("regnet_y") else None)
    return RegNet(params, norm_layer=norm_layer or partial(nn.BatchNorm2d, eps=1e-05, momentum=0.1), **kwargs)


__all__ = ["RegNet", *builders(globals(), {name: name for name in _ARCHS}, _make)]
