"""GoogLeNet: inception modules of four branches, with two auxiliary classifiers in training."""

from collections import namedtuple

from ... import _C, nn
from ._api import chosen, load, register, weights_of

__all__ = ["GoogLeNet", "GoogLeNetOutputs", "_GoogLeNetOutputs", "GoogLeNet_Weights", "googlenet"]

GoogLeNetOutputs = namedtuple("GoogLeNetOutputs", ["logits", "aux_logits2", "aux_logits1"])
_GoogLeNetOutputs = GoogLeNetOutputs
GoogLeNet_Weights = weights_of("googlenet", __name__)

#: Inception modules: input channels, then the widths of the branches.
_MODULES = {
    "3a": (192, 64, 96, 128, 16, 32, 32), "3b": (256, 128, 128, 192, 32, 96, 64),
    "4a": (480, 192, 96, 208, 16, 48, 64), "4b": (512, 160, 112, 224, 24, 64, 64), "4c": (512, 128, 128, 256, 24, 64, 64),
    "4d": (512, 112, 144, 288, 32, 64, 64), "4e": (528, 256, 160, 320, 32, 128, 128),
    "5a": (832, 256, 160, 320, 32, 128, 128), "5b": (832, 384, 192, 384, 48, 128, 128),
}


class BasicConv2d(nn.Module):
    """A convolution, a norm and a ReLU."""

    def __init__(self, in_channels, out_channels, **kwargs):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **kwargs)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x):
        return nn.functional.relu(self.bn(self.conv(x)), inplace=True)


class Inception(nn.Module):
    """Four branches: 1x1, two of a reduction and a 3x3, a pooling and a 1x1."""

    def __init__(self, in_channels, ch1x1, ch3x3red, ch3x3, ch5x5red, ch5x5, pool_proj, conv_block=None):
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch1 = conv(in_channels, ch1x1, kernel_size=1)
        self.branch2 = nn.Sequential(conv(in_channels, ch3x3red, kernel_size=1), conv(ch3x3red, ch3x3, kernel_size=3, padding=1))
        # The paper has 5x5 here. The published weights are of a 3x3.
        self.branch3 = nn.Sequential(conv(in_channels, ch5x5red, kernel_size=1), conv(ch5x5red, ch5x5, kernel_size=3, padding=1))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1, ceil_mode=True), conv(in_channels, pool_proj, kernel_size=1))

    def forward(self, x):
        return _C._torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class InceptionAux(nn.Module):
    """An auxiliary classifier."""

    def __init__(self, in_channels, num_classes, conv_block=None, dropout=0.7):
        super().__init__()
        self.conv = (conv_block or BasicConv2d)(in_channels, 128, kernel_size=1)
        self.fc1, self.fc2 = nn.Linear(2048, 1024), nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, x):
        x = _C._torch.flatten(self.conv(nn.functional.adaptive_avg_pool2d(x, (4, 4))), 1)
        return self.fc2(self.dropout(nn.functional.relu(self.fc1(x), inplace=True)))


def transform_input(x):
    """Images normalised by ImageNet's statistics, normalised instead to the range of -1 to 1."""
    mean, std = ((_C.tensor(v, dtype=x.dtype, device=x.device).reshape(1, 3, 1, 1)) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    return x * (std / 0.5) + (mean - 0.5) / 0.5


def truncated(model, deviation=0.01):
    """Weights from a normal distribution cut at two deviations, ones and zeros for norms."""
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(module.weight, mean=0.0, std=float(getattr(module, "stddev", deviation)), a=-2, b=2)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)


class GoogLeNet(nn.Module):
    """The whole network. In training it gives ``GoogLeNetOutputs`` if it has auxiliary classifiers."""

    def __init__(self, num_classes=1000, aux_logits=True, transform_input=False, init_weights=None, blocks=None, dropout=0.2, dropout_aux=0.7):
        super().__init__()
        conv, inception, aux = blocks or (BasicConv2d, Inception, InceptionAux)
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.conv1 = conv(3, 64, kernel_size=7, stride=2, padding=3)
        self.maxpool1 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.conv2, self.conv3 = conv(64, 64, kernel_size=1), conv(64, 192, kernel_size=3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        for name, widths in _MODULES.items():
            setattr(self, f"inception{name}", inception(*widths))
            if name == "3b":
                self.maxpool3 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
            elif name == "4e":
                self.maxpool4 = nn.MaxPool2d(2, stride=2, ceil_mode=True)
        self.aux1, self.aux2 = (aux(c, num_classes, dropout=dropout_aux) if aux_logits else None for c in (512, 528))
        self.avgpool, self.dropout, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Dropout(p=dropout), nn.Linear(1024, num_classes)
        if init_weights is None or init_weights:
            truncated(self)

    def forward(self, x):
        if self.transform_input:
            x = transform_input(x)
        x = self.maxpool2(self.conv3(self.conv2(self.maxpool1(self.conv1(x)))))
        x = self.inception4a(self.maxpool3(self.inception3b(self.inception3a(x))))
        extra = self.training and self.aux_logits
        first = self.aux1(x) if extra and self.aux1 is not None else None
        x = self.inception4d(self.inception4c(self.inception4b(x)))
        second = self.aux2(x) if extra and self.aux2 is not None else None
        x = self.inception5b(self.inception5a(self.maxpool4(self.inception4e(x))))
        x = self.fc(self.dropout(_C._torch.flatten(self.avgpool(x), 1)))
        return GoogLeNetOutputs(x, second, first) if extra else x


def with_auxiliary(make, builder, weights, kwargs, drop):
    """A model with auxiliary classifiers in its file, which the caller may not want."""
    weights = chosen(builder, weights, kwargs)
    if weights is None:
        return make(**kwargs)
    wanted = kwargs.get("aux_logits", drop is None)
    model = load(make(**{"transform_input": True, "init_weights": False, **kwargs, "aux_logits": True}), weights)
    if not wanted:
        model.aux_logits = False
        for name in drop or ("AuxLogits",):
            setattr(model, name, None)
    return model


@register
def googlenet(*, weights=None, progress=True, **kwargs):
    """GoogLeNet with torchvision's layers. With trained weights, it has no auxiliary classifiers unless asked for."""
    return with_auxiliary(GoogLeNet, googlenet, weights, kwargs, ("aux1", "aux2"))
