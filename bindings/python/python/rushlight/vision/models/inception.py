"""Inception v3: modules of branches with factorised convolutions."""

from collections import namedtuple

from ... import _C, nn
from ._api import register, weights_of
from .googlenet import BasicConv2d, transform_input, truncated, with_auxiliary

__all__ = ["Inception3", "InceptionOutputs", "_InceptionOutputs", "Inception_V3_Weights", "inception_v3"]

InceptionOutputs = namedtuple("InceptionOutputs", ["logits", "aux_logits"])
_InceptionOutputs = InceptionOutputs
Inception_V3_Weights = weights_of("inception_v3", __name__)

_pool = nn.functional.avg_pool2d


class _Branches(nn.Module):
    """A module of branches: chains of named convolutions. A row is the layer's name, its output channels, its kernel, and options."""

    def _add(self, conv, channels, *rows):
        for name, outputs, kernel, *options in rows:
            stride, padding = (options + [1, None])[:2]
            if padding is None:
                padding = tuple(k // 2 for k in kernel) if isinstance(kernel, tuple) else kernel // 2
            setattr(self, name, conv(channels, outputs, kernel_size=kernel, stride=stride, padding=padding))
            channels = outputs

    def _chain(self, x, *names):
        for name in names:
            x = getattr(self, name)(x)
        return x

    def forward(self, x):
        return _C._torch.cat(self._forward(x), 1)


class InceptionA(_Branches):
    """Branches of 1x1, 5x5, two 3x3, and a pooling."""

    def __init__(self, in_channels, pool_features, conv_block=None):
        super().__init__()
        conv = conv_block or BasicConv2d
        self._add(conv, in_channels, ("branch1x1", 64, 1))
        self._add(conv, in_channels, ("branch5x5_1", 48, 1), ("branch5x5_2", 64, 5))
        self._add(conv, in_channels, ("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3))
        self._add(conv, in_channels, ("branch_pool", pool_features, 1))

    def _forward(self, x):
        return [
            self.branch1x1(x), self._chain(x, "branch5x5_1", "branch5x5_2"), self._chain(x, "branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"),
            self.branch_pool(_pool(x, kernel_size=3, stride=1, padding=1)),
        ]


class InceptionB(_Branches):
    """Halves height and width: a 3x3, two 3x3, a pooling."""

    def __init__(self, in_channels, conv_block=None):
        super().__init__()
        conv = conv_block or BasicConv2d
        self._add(conv, in_channels, ("branch3x3", 384, 3, 2, 0))
        self._add(conv, in_channels, ("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3, 2, 0))

    def _forward(self, x):
        deep = self._chain(x, "branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3")
        return [self.branch3x3(x), deep, nn.functional.max_pool2d(x, kernel_size=3, stride=2)]


class InceptionC(_Branches):
    """Branches of 7x7 as 1x7 and 7x1."""

    def __init__(self, in_channels, channels_7x7, conv_block=None):
        super().__init__()
        conv, c = conv_block or BasicConv2d, channels_7x7
        self._add(conv, in_channels, ("branch1x1", 192, 1))
        self._add(conv, in_channels, ("branch7x7_1", c, 1), ("branch7x7_2", c, (1, 7)), ("branch7x7_3", 192, (7, 1)))
        self._add(
            conv, in_channels, ("branch7x7dbl_1", c, 1), ("branch7x7dbl_2", c, (7, 1)), ("branch7x7dbl_3", c, (1, 7)), ("branch7x7dbl_4", c, (7, 1)),
            ("branch7x7dbl_5", 192, (1, 7)),
        )
        self._add(conv, in_channels, ("branch_pool", 192, 1))

    def _forward(self, x):
        single = self._chain(x, *(f"branch7x7_{i}" for i in range(1, 4)))
        double = self._chain(x, *(f"branch7x7dbl_{i}" for i in range(1, 6)))
        return [self.branch1x1(x), single, double, self.branch_pool(_pool(x, kernel_size=3, stride=1, padding=1))]


class InceptionD(_Branches):
    """Halves height and width: a 3x3, a 7x7 with a 3x3, a pooling."""

    def __init__(self, in_channels, conv_block=None):
        super().__init__()
        conv = conv_block or BasicConv2d
        self._add(conv, in_channels, ("branch3x3_1", 192, 1), ("branch3x3_2", 320, 3, 2, 0))
        self._add(
            conv, in_channels, ("branch7x7x3_1", 192, 1), ("branch7x7x3_2", 192, (1, 7)), ("branch7x7x3_3", 192, (7, 1)), ("branch7x7x3_4", 192, 3, 2, 0),
        )

    def _forward(self, x):
        deep = self._chain(x, *(f"branch7x7x3_{i}" for i in range(1, 5)))
        return [self._chain(x, "branch3x3_1", "branch3x3_2"), deep, nn.functional.max_pool2d(x, kernel_size=3, stride=2)]


class InceptionE(_Branches):
    """Branches that end in 1x3 and 3x1 side by side."""

    def __init__(self, in_channels, conv_block=None):
        super().__init__()
        conv = conv_block or BasicConv2d
        self._add(conv, in_channels, ("branch1x1", 320, 1))
        self._add(conv, in_channels, ("branch3x3_1", 384, 1))
        self._add(conv, 384, ("branch3x3_2a", 384, (1, 3)))
        self._add(conv, 384, ("branch3x3_2b", 384, (3, 1)))
        self._add(conv, in_channels, ("branch3x3dbl_1", 448, 1), ("branch3x3dbl_2", 384, 3))
        self._add(conv, 384, ("branch3x3dbl_3a", 384, (1, 3)))
        self._add(conv, 384, ("branch3x3dbl_3b", 384, (3, 1)))
        self._add(conv, in_channels, ("branch_pool", 192, 1))

    def _forward(self, x):
        single, double = self.branch3x3_1(x), self._chain(x, "branch3x3dbl_1", "branch3x3dbl_2")
        single = _C._torch.cat([self.branch3x3_2a(single), self.branch3x3_2b(single)], 1)
        double = _C._torch.cat([self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double)], 1)
        return [self.branch1x1(x), single, double, self.branch_pool(_pool(x, kernel_size=3, stride=1, padding=1))]


class InceptionAux(nn.Module):
    """The auxiliary classifier."""

    def __init__(self, in_channels, num_classes, conv_block=None):
        super().__init__()
        conv = conv_block or BasicConv2d
        self.conv0, self.conv1 = conv(in_channels, 128, kernel_size=1), conv(128, 768, kernel_size=5)
        self.conv1.stddev = 0.01
        self.fc = nn.Linear(768, num_classes)
        self.fc.stddev = 0.001

    def forward(self, x):
        x = self.conv1(self.conv0(_pool(x, kernel_size=5, stride=3)))
        return self.fc(_C._torch.flatten(nn.functional.adaptive_avg_pool2d(x, (1, 1)), 1))


class Inception3(nn.Module):
    """The whole network. In training it gives ``InceptionOutputs`` if it has the auxiliary classifier."""

    def __init__(self, num_classes=1000, aux_logits=True, transform_input=False, inception_blocks=None, init_weights=None, dropout=0.5):
        super().__init__()
        conv, a, b, c, d, e, aux = inception_blocks or (BasicConv2d, InceptionA, InceptionB, InceptionC, InceptionD, InceptionE, InceptionAux)
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.Conv2d_1a_3x3, self.Conv2d_2a_3x3 = conv(3, 32, kernel_size=3, stride=2), conv(32, 32, kernel_size=3)
        self.Conv2d_2b_3x3 = conv(32, 64, kernel_size=3, padding=1)
        self.maxpool1 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Conv2d_3b_1x1, self.Conv2d_4a_3x3 = conv(64, 80, kernel_size=1), conv(80, 192, kernel_size=3)
        self.maxpool2 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = a(192, pool_features=32), a(256, pool_features=64), a(288, pool_features=64)
        self.Mixed_6a = b(288)
        for name, width in zip("bcde", (128, 160, 160, 192)):
            setattr(self, f"Mixed_6{name}", c(768, channels_7x7=width))
        self.AuxLogits = aux(768, num_classes) if aux_logits else None
        self.Mixed_7a, self.Mixed_7b, self.Mixed_7c = d(768), e(1280), e(2048)
        self.avgpool, self.dropout, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Dropout(p=dropout), nn.Linear(2048, num_classes)
        if init_weights is None or init_weights:
            truncated(self, 0.1)

    def forward(self, x):
        if self.transform_input:
            x = transform_input(x)
        x = self.maxpool1(self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x))))
        x = self.maxpool2(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)))
        x = self.Mixed_6a(self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(x))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(x))))
        extra = self.training and self.aux_logits
        aux = self.AuxLogits(x) if extra and self.AuxLogits is not None else None
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        x = self.fc(_C._torch.flatten(self.dropout(self.avgpool(x)), 1))
        return InceptionOutputs(x, aux) if extra else x


@register
def inception_v3(*, weights=None, progress=True, **kwargs):
    """Inception v3 with torchvision's layers."""
    return with_auxiliary(Inception3, inception_v3, weights, kwargs, None)
