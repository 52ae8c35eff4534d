"""Layers shared by models."""

from ... import _C, nn

__all__ = ["Conv2dNormActivation", "Conv3dNormActivation", "ConvNormActivation", "FrozenBatchNorm2d", "MLP", "Permute", "SqueezeExcitation"]


class FrozenBatchNorm2d(nn.Module):
    """Batch norm with frozen statistics and weights."""

    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", _C._torch.ones(num_features))
        self.register_buffer("bias", _C._torch.zeros(num_features))
        self.register_buffer("running_mean", _C._torch.zeros(num_features))
        self.register_buffer("running_var", _C._torch.ones(num_features))

    def _load_from_state_dict(self, state_dict, prefix, *args):
        state_dict.pop(prefix + "num_batches_tracked", None)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, x):
        scale = (self.weight * (self.running_var + self.eps).rsqrt()).reshape(1, -1, 1, 1)
        return x * scale + (self.bias.reshape(1, -1, 1, 1) - self.running_mean.reshape(1, -1, 1, 1) * scale)

    def __repr__(self):
        return f"FrozenBatchNorm2d({self.weight.shape[0]}, eps={self.eps})"


def _tuple(value, n):
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * n


class ConvNormActivation(nn.Sequential):
    """A convolution, a norm and an activation."""

    def __init__(
        self, in_channels, out_channels, kernel_size=3, stride=1, padding=None, groups=1, norm_layer=nn.BatchNorm2d, activation_layer=nn.ReLU, dilation=1, inplace=True,
        bias=None, conv_layer=nn.Conv2d,
    ):
        dims = 3 if conv_layer is nn.Conv3d else 2
        if padding is None:
            padding = tuple((k - 1) // 2 * d for k, d in zip(_tuple(kernel_size, dims), _tuple(dilation, dims)))
        bias = norm_layer is None if bias is None else bias
        layers = [conv_layer(in_channels, out_channels, kernel_size, stride, padding, dilation=dilation, groups=groups, bias=bias)]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*layers)
        self.out_channels = out_channels


class Conv2dNormActivation(ConvNormActivation):
    """``ConvNormActivation`` of images."""


class Conv3dNormActivation(ConvNormActivation):
    """``ConvNormActivation`` of videos."""

    def __init__(self, in_channels, out_channels, kernel_size=3, stride=1, padding=None, groups=1, norm_layer=nn.BatchNorm3d, **options):
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, groups, norm_layer, conv_layer=nn.Conv3d, **options)


class SqueezeExcitation(nn.Module):
    """Squeeze and excitation: channels scaled by a function of their means."""

    def __init__(self, input_channels, squeeze_channels, activation=nn.ReLU, scale_activation=nn.Sigmoid):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(input_channels, squeeze_channels, 1), nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation, self.scale_activation = activation(), scale_activation()

    def forward(self, input):
        return self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(input))))) * input


class MLP(nn.Sequential):
    """Linear layers with norms, activations and dropout."""

    def __init__(self, in_channels, hidden_channels, norm_layer=None, activation_layer=nn.ReLU, inplace=None, bias=True, dropout=0.0):
        options = {} if inplace is None else {"inplace": inplace}
        layers, size = [], in_channels
        for hidden in hidden_channels[:-1]:
            layers.append(nn.Linear(size, hidden, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(hidden))
            layers += [activation_layer(**options), nn.Dropout(dropout, **options)]
            size = hidden
        super().__init__(*layers, nn.Linear(size, hidden_channels[-1], bias=bias), nn.Dropout(dropout, **options))


class Permute(nn.Module):
    """Permutes dimensions."""

    def __init__(self, dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.permute(self.dims)
