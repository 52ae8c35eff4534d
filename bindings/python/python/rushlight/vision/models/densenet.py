"""DenseNet: each layer of a block reads the outputs of all layers before it."""

import re
from collections import OrderedDict

from ... import _C, nn
from ...utils.checkpoint import checkpoint
from ._api import builders

#: Growth, layers of the blocks, channels of the first convolution.
_ARCHS = {
    "densenet121": (32, (6, 12, 24, 16), 64), "densenet161": (48, (6, 12, 36, 24), 96), "densenet169": (32, (6, 12, 32, 32), 64),
    "densenet201": (32, (6, 12, 48, 32), 64),
}


class _DenseLayer(nn.Module):
    """A bottleneck and a 3x3 convolution; ``memory_efficient`` computes the bottleneck again in the backward pass."""

    def __init__(self, num_input_features, growth_rate, bn_size, drop_rate, memory_efficient=False):
        super().__init__()
        width = bn_size * growth_rate
        self.norm1, self.relu1 = nn.BatchNorm2d(num_input_features), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(num_input_features, width, kernel_size=1, stride=1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, growth_rate, kernel_size=3, stride=1, padding=1, bias=False)
        self.drop_rate, self.memory_efficient = float(drop_rate), memory_efficient

    def bn_function(self, inputs):
        """The bottleneck of all outputs so far."""
        return self.conv1(self.relu1(self.norm1(_C._torch.cat(inputs, 1))))

    def forward(self, input):
        inputs = [input] if isinstance(input, _C.Tensor) else input
        if self.memory_efficient and any(t.requires_grad for t in inputs):
            narrow = checkpoint(lambda *tensors: self.bn_function(list(tensors)), *inputs, use_reentrant=False)
        else:
            narrow = self.bn_function(inputs)
        new = self.conv2(self.relu2(self.norm2(narrow)))
        return nn.functional.dropout(new, p=self.drop_rate, training=self.training) if self.drop_rate > 0 else new


class _DenseBlock(nn.ModuleDict):
    """Layers whose outputs are joined."""

    def __init__(self, num_layers, num_input_features, bn_size, growth_rate, drop_rate, memory_efficient=False):
        super().__init__()
        for i in range(num_layers):
            self.add_module(f"denselayer{i + 1}", _DenseLayer(num_input_features + i * growth_rate, growth_rate, bn_size, drop_rate, memory_efficient))

    def forward(self, init_features):
        found = [init_features]
        for layer in self.values():
            found.append(layer(found))
        return _C._torch.cat(found, 1)


class _Transition(nn.Sequential):
    """Between blocks: fewer channels, half the height and width."""

    def __init__(self, num_input_features, num_output_features):
        super().__init__()
        self.norm, self.relu = nn.BatchNorm2d(num_input_features), nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(num_input_features, num_output_features, kernel_size=1, stride=1, bias=False)
        self.pool = nn.AvgPool2d(kernel_size=2, stride=2)


class DenseNet(nn.Module):
    """Dense blocks with transitions between them."""

    def __init__(
        self, growth_rate=32, block_config=(6, 12, 24, 16), num_init_features=64, bn_size=4, drop_rate=0, num_classes=1000, memory_efficient=False,
    ):
        super().__init__()
        channels = num_init_features
        self.features = nn.Sequential(OrderedDict([
            ("conv0", nn.Conv2d(3, channels, kernel_size=7, stride=2, padding=3, bias=False)), ("norm0", nn.BatchNorm2d(channels)),
            ("relu0", nn.ReLU(inplace=True)), ("pool0", nn.MaxPool2d(kernel_size=3, stride=2, padding=1)),
        ]))
        for i, layers in enumerate(block_config, 1):
            self.features.add_module(f"denseblock{i}", _DenseBlock(layers, channels, bn_size, growth_rate, drop_rate, memory_efficient))
            channels += layers * growth_rate
            if i < len(block_config):
                self.features.add_module(f"transition{i}", _Transition(channels, channels // 2))
                channels //= 2
        # So named whatever the number of blocks.
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, x):
        x = nn.functional.relu(self.features(x), inplace=True)
        return self.classifier(_C._torch.flatten(nn.functional.adaptive_avg_pool2d(x, (1, 1)), 1))


def _rename(state):
    """The published files write ``norm.1`` for ``norm1``."""
    return {re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", key): value for key, value in state.items()}


def _make(config, **kwargs):
    return DenseNet(*config, **kwargs)


__all__ = ["DenseNet", *builders(globals(), _ARCHS, _make, _rename)]
