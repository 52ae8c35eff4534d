"""VGG: stages of small convolutions."""

from ... import _C, nn
from ._api import build, register, weights_enum

_STAGES = {
    # layers of the five stages, of 64, 128, 256, 512 and 512 channels
    "vgg11": (1, 1, 2, 2, 2), "vgg13": (2, 2, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4),
}


class VGG(nn.Module):
    """Convolutions ``features`` and three linear layers."""

    def __init__(self, features, num_classes=1000, init_weights=True, dropout=0.5):
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(True), nn.Dropout(p=dropout), nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(p=dropout),
            nn.Linear(4096, num_classes),
        )
        if init_weights:
            for module in self.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                    nn.init.constant_(module.bias, 0)
                elif isinstance(module, nn.BatchNorm2d):
                    nn.init.constant_(module.weight, 1)
                    nn.init.constant_(module.bias, 0)
                elif isinstance(module, nn.Linear):
                    nn.init.normal_(module.weight, 0, 0.01)
                    nn.init.constant_(module.bias, 0)

    def forward(self, x):
        return self.classifier(_C._torch.flatten(self.avgpool(self.features(x)), 1))


def _features(stages, batch_norm):
    layers, channels = [], 3
    for count, width in zip(stages, (64, 128, 256, 512, 512)):
        for _ in range(count):
            layers.append(nn.Conv2d(channels, width, kernel_size=3, padding=1))
            layers += [nn.BatchNorm2d(width)] if batch_norm else []
            layers.append(nn.ReLU(inplace=True))
            channels = width
        layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
    return nn.Sequential(*layers)


def _builder(name, stages, batch_norm):
    def make(*, weights=None, progress=True, **kwargs):
        return build(lambda **k: VGG(_features(stages, batch_norm), **k), name, weights, kwargs, progress)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A network with torchvision's layers of ``{name}``."
    return register(make)


__all__ = ["VGG"]
for _name, _stages in _STAGES.items():
    for _suffix in ("", "_bn"):
        globals()[_name + _suffix] = _builder(_name + _suffix, _stages, bool(_suffix))
        _enum = f"{_name.upper()}{_suffix.upper()}_Weights"
        globals()[_enum] = weights_enum(_enum, _name + _suffix)
        __all__ += [_name + _suffix, _enum]
