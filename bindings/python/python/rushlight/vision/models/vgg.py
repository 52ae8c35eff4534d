"""VGG: stages of small convolutions."""

from ... import _C, nn
from ._api import builders

#: Layers of the five stages, of 64, 128, 256, 512 and 512 channels.
_STAGES = {"vgg11": (1, 1, 2, 2, 2), "vgg13": (2, 2, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
#: The same as lists of channels and poolings, "M", by letter.
cfgs = {
    letter: [one for count, width in zip(stages, (64, 128, 256, 512, 512)) for one in (*[width] * count, "M")] for letter, stages in zip("ABDE", _STAGES.values())
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


def make_layers(cfg, batch_norm=False):
    """Convolutions of 3x3 with the channels of a list, and a pooling for each "M"."""
    layers, channels = [], 3
    for width in cfg:
        if width == "M":
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
            continue
        layers.append(nn.Conv2d(channels, width, kernel_size=3, padding=1))
        layers += [nn.BatchNorm2d(width)] if batch_norm else []
        layers.append(nn.ReLU(inplace=True))
        channels = width
    return nn.Sequential(*layers)


def _make(config, **kwargs):
    return VGG(make_layers(*config), **kwargs)


_ARCHS = {name + suffix: (cfgs[letter], bool(suffix)) for letter, name in zip("ABDE", _STAGES) for suffix in ("", "_bn")}

__all__ = ["VGG", *builders(globals(), _ARCHS, _make)]
