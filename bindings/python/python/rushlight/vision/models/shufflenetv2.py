"""ShuffleNetV2: half of the channels is convolved, then channels are shuffled."""

from ... import _C, nn
from ._api import builders

#: Channels of the five stages.
_ARCHS = {
    "shufflenet_v2_x0_5": [24, 48, 96, 192, 1024], "shufflenet_v2_x1_0": [24, 116, 232, 464, 1024], "shufflenet_v2_x1_5": [24, 176, 352, 704, 1024],
    "shufflenet_v2_x2_0": [24, 244, 488, 976, 2048],
}


def channel_shuffle(x, groups):
    """Channels of the groups taken in turn."""
    batch, channels, height, width = x.size()
    return x.view(batch, groups, channels // groups, height, width).transpose(1, 2).reshape(batch, channels, height, width)


def _pointwise(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, kernel_size=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


def _depthwise(channels, stride):
    return [nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False), nn.BatchNorm2d(channels)]


class InvertedResidual(nn.Module):
    """One unit. With a stride, both halves read all channels."""

    def __init__(self, inp, oup, stride):
        super().__init__()
        if not 1 <= stride <= 3:
            raise ValueError("illegal stride value")
        half = oup // 2
        if stride == 1 and inp != half << 1:
            raise ValueError(f"Invalid combination of stride {stride}, inp {inp} and oup {oup} values. If stride == 1 then inp should be equal to oup // 2 << 1.")
        self.stride = stride
        self.branch1 = nn.Sequential(*([] if stride == 1 else _depthwise(inp, stride) + _pointwise(inp, half)))
        self.branch2 = nn.Sequential(*_pointwise(half if stride == 1 else inp, half), *_depthwise(half, stride), *_pointwise(half, half))

    def forward(self, x):
        if self.stride == 1:
            left, right = x.chunk(2, dim=1)
        else:
            left, right = self.branch1(x), x
        return channel_shuffle(_C._torch.cat((left, self.branch2(right)), dim=1), 2)


class ShuffleNetV2(nn.Module):
    """The whole network."""

    def __init__(self, stages_repeats, stages_out_channels, num_classes=1000, inverted_residual=InvertedResidual):
        super().__init__()
        if len(stages_repeats) != 3:
            raise ValueError("expected stages_repeats as list of 3 positive ints")
        if len(stages_out_channels) != 5:
            raise ValueError("expected stages_out_channels as list of 5 positive ints")
        channels, *stages, last = stages_out_channels
        self.conv1 = nn.Sequential(nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        for at, (count, width) in enumerate(zip(stages_repeats, stages), 2):
            units = [inverted_residual(channels, width, 2)] + [inverted_residual(width, width, 1) for _ in range(count - 1)]
            setattr(self, f"stage{at}", nn.Sequential(*units))
            channels = width
        self.conv5 = nn.Sequential(*_pointwise(channels, last))
        self.fc = nn.Linear(last, num_classes)

    def forward(self, x):
        x = self.stage4(self.stage3(self.stage2(self.maxpool(self.conv1(x)))))
        return self.fc(self.conv5(x).mean([2, 3]))


def _make(channels, **kwargs):
    return ShuffleNetV2([4, 8, 4], channels, **kwargs)


__all__ = ["ShuffleNetV2", *builders(globals(), _ARCHS, _make)]
