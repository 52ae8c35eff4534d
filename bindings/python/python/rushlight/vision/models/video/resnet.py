"""Residual networks of videos: 3-d convolutions, some of them only in the first layers or factorised."""

from .... import nn
from .._api import builders


class Conv3DSimple(nn.Conv3d):
    """A convolution over time and space."""

    def __init__(self, in_planes, out_planes, midplanes=None, stride=1, padding=1):
        super().__init__(in_planes, out_planes, kernel_size=(3, 3, 3), stride=stride, padding=padding, bias=False)

    @staticmethod
    def get_downsample_stride(stride):
        return stride, stride, stride


class Conv2Plus1D(nn.Sequential):
    """A convolution over space, then one over time."""

    def __init__(self, in_planes, out_planes, midplanes, stride=1, padding=1):
        super().__init__(
            nn.Conv3d(in_planes, midplanes, kernel_size=(1, 3, 3), stride=(1, stride, stride), padding=(0, padding, padding), bias=False),
            nn.BatchNorm3d(midplanes), nn.ReLU(inplace=True),
            nn.Conv3d(midplanes, out_planes, kernel_size=(3, 1, 1), stride=(stride, 1, 1), padding=(padding, 0, 0), bias=False),
        )

    @staticmethod
    def get_downsample_stride(stride):
        return stride, stride, stride


class Conv3DNoTemporal(nn.Conv3d):
    """A convolution over space alone."""

    def __init__(self, in_planes, out_planes, midplanes=None, stride=1, padding=1):
        super().__init__(in_planes, out_planes, kernel_size=(1, 3, 3), stride=(1, stride, stride), padding=(0, padding, padding), bias=False)

    @staticmethod
    def get_downsample_stride(stride):
        return 1, stride, stride


def _middle(inputs, outputs):
    """Channels between the two parts of a factorised convolution, for as many parameters as a whole one has."""
    return inputs * outputs * 27 // (inputs * 9 + 3 * outputs)


class BasicBlock(nn.Module):
    """Two convolutions with a residual connection."""

    expansion = 1

    def __init__(self, inplanes, planes, conv_builder, stride=1, downsample=None):
        super().__init__()
        middle = _middle(inplanes, planes)
        self.conv1 = nn.Sequential(conv_builder(inplanes, planes, middle, stride), nn.BatchNorm3d(planes), nn.ReLU(inplace=True))
        self.conv2 = nn.Sequential(conv_builder(planes, planes, middle), nn.BatchNorm3d(planes))
        self.relu, self.downsample, self.stride = nn.ReLU(inplace=True), downsample, stride

    def forward(self, x):
        return self.relu(self.conv2(self.conv1(x)) + (x if self.downsample is None else self.downsample(x)))


class BasicStem(nn.Sequential):
    """The first convolution."""

    def __init__(self):
        super().__init__(
            nn.Conv3d(3, 64, kernel_size=(3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3), bias=False), nn.BatchNorm3d(64), nn.ReLU(inplace=True),
        )


class R2Plus1dStem(nn.Sequential):
    """The first convolution, factorised."""

    def __init__(self):
        super().__init__(
            nn.Conv3d(3, 45, kernel_size=(1, 7, 7), stride=(1, 2, 2), padding=(0, 3, 3), bias=False), nn.BatchNorm3d(45), nn.ReLU(inplace=True),
            nn.Conv3d(45, 64, kernel_size=(3, 1, 1), stride=(1, 1, 1), padding=(1, 0, 0), bias=False), nn.BatchNorm3d(64), nn.ReLU(inplace=True),
        )


class VideoResNet(nn.Module):
    """A residual network of four stages."""

    def __init__(self, block, conv_makers, layers, stem, num_classes=400, zero_init_residual=False):
        super().__init__()
        self.inplanes, self.stem = 64, stem()
        for at, (conv, count) in enumerate(zip(conv_makers, layers)):
            setattr(self, f"layer{at + 1}", self._make_layer(block, conv, 64 << at, count, stride=2 if at else 1))
        self.avgpool = nn.AdaptiveAvgPool3d((1, 1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv3d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)
        if zero_init_residual:
            for module in self.modules():
                if isinstance(module, BasicBlock):
                    nn.init.zeros_(module.conv2[1].weight)

    def _make_layer(self, block, conv, planes, blocks, stride=1):
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            strides = conv.get_downsample_stride(stride)
            downsample = nn.Sequential(
                nn.Conv3d(self.inplanes, planes * block.expansion, kernel_size=1, stride=strides, bias=False), nn.BatchNorm3d(planes * block.expansion),
            )
        layers = [block(self.inplanes, planes, conv, stride, downsample)]
        self.inplanes = planes * block.expansion
        return nn.Sequential(*layers, *(block(self.inplanes, planes, conv) for _ in range(blocks - 1)))

    def forward(self, x):
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        return self.fc(self.avgpool(x).flatten(1))


_ARCHS = {
    "r3d_18": ([Conv3DSimple] * 4, BasicStem), "mc3_18": ([Conv3DSimple] + [Conv3DNoTemporal] * 3, BasicStem), "r2plus1d_18": ([Conv2Plus1D] * 4, R2Plus1dStem),
}


def _make(config, **kwargs):
    return VideoResNet(BasicBlock, config[0], [2, 2, 2, 2], config[1], **kwargs)


__all__ = ["VideoResNet", *builders(globals(), _ARCHS, _make)]
