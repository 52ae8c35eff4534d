"""AlexNet."""

from ... import _C, nn
from ._api import builders


class AlexNet(nn.Module):
    """Five convolutions and three linear layers."""

    def __init__(self, num_classes=1000, dropout=0.5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, kernel_size=11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(64, 192, kernel_size=5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(192, 384, kernel_size=3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, kernel_size=3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, kernel_size=3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(kernel_size=3, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True), nn.Dropout(p=dropout), nn.Linear(4096, 4096),
            nn.ReLU(inplace=True), nn.Linear(4096, num_classes),
        )

    def forward(self, x):
        return self.classifier(_C._torch.flatten(self.avgpool(self.features(x)), 1))


def _make(_, **kwargs):
    return AlexNet(**kwargs)


__all__ = ["AlexNet", *builders(globals(), {"alexnet": None}, _make)]
