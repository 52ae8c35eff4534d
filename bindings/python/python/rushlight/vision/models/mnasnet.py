"""MNASNet: inverted residuals found by a search, in stacks."""

from ... import nn
from ._api import builders

#: Factors of the widths.
_ARCHS = {"mnasnet0_5": 0.5, "mnasnet0_75": 0.75, "mnasnet1_0": 1.0, "mnasnet1_3": 1.3}
#: Kernel, stride, expansion and blocks of each stack.
_STACKS = [(3, 2, 3, 3), (5, 2, 3, 3), (5, 2, 6, 3), (3, 1, 6, 2), (5, 2, 6, 4), (3, 1, 6, 1)]
#: The momentum of norms is the complement of TensorFlow's.
_MOMENTUM = 1 - 0.9997


def _norm(channels):
    return nn.BatchNorm2d(channels, momentum=_MOMENTUM)


def _depths(alpha):
    def rounded(value):
        near = max(8, int(value + 4) // 8 * 8)
        return near if near >= 0.9 * value else near + 8

    return [rounded(depth * alpha) for depth in (32, 16, 24, 40, 80, 96, 192, 320)]


class _InvertedResidual(nn.Module):
    """One block, with a residual connection if the shapes agree."""

    def __init__(self, in_ch, out_ch, kernel_size, stride, expansion_factor, bn_momentum=0.1):
        super().__init__()
        wide = in_ch * expansion_factor
        self.apply_residual = in_ch == out_ch and stride == 1

        def norm(channels):
            return nn.BatchNorm2d(channels, momentum=bn_momentum)

        self.layers = nn.Sequential(
            nn.Conv2d(in_ch, wide, 1, bias=False), norm(wide), nn.ReLU(inplace=True),
            nn.Conv2d(wide, wide, kernel_size, padding=kernel_size // 2, stride=stride, groups=wide, bias=False), norm(wide), nn.ReLU(inplace=True),
            nn.Conv2d(wide, out_ch, 1, bias=False), norm(out_ch),
        )

    def forward(self, input):
        return self.layers(input) + input if self.apply_residual else self.layers(input)


class MNASNet(nn.Module):
    """The whole network, with widths scaled by ``alpha``."""

    _version = 2

    def __init__(self, alpha, num_classes=1000, dropout=0.2):
        super().__init__()
        if alpha <= 0.0:
            raise ValueError(f"alpha should be greater than 0.0 instead of {alpha}")
        self.alpha, self.num_classes = alpha, num_classes
        depths = _depths(alpha)
        first, second = depths[:2]
        layers = [
            nn.Conv2d(3, first, 3, padding=1, stride=2, bias=False), _norm(first), nn.ReLU(inplace=True),
            nn.Conv2d(first, first, 3, padding=1, stride=1, groups=first, bias=False), _norm(first), nn.ReLU(inplace=True),
            nn.Conv2d(first, second, 1, bias=False), _norm(second),
        ]
        for inputs, outputs, (kernel, stride, expansion, count) in zip(depths[1:], depths[2:], _STACKS):
            blocks = [_InvertedResidual(inputs, outputs, kernel, stride, expansion, _MOMENTUM)]
            blocks += [_InvertedResidual(outputs, outputs, kernel, 1, expansion, _MOMENTUM) for _ in range(count - 1)]
            layers.append(nn.Sequential(*blocks))
        layers += [nn.Conv2d(depths[-1], 1280, 1, bias=False), _norm(1280), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(p=dropout, inplace=True), nn.Linear(1280, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.kaiming_uniform_(module.weight, mode="fan_out", nonlinearity="sigmoid")
                nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.classifier(self.layers(x).mean([2, 3]))


__all__ = ["MNASNet", *builders(globals(), _ARCHS, MNASNet)]
