"""Deformable convolutions."""

import math

from ... import _C, nn

__all__ = ["DeformConv2d", "deform_conv2d"]


def _pair(value):
    return [int(value)] * 2 if isinstance(value, int) else [int(v) for v in value]


def deform_conv2d(input, offset, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), mask=None):
    """A convolution whose taps are shifted by ``offset`` and, in version 2, scaled by ``mask``."""
    return _C._nn._deform_conv2d(input, offset, weight, bias, mask, _pair(stride), _pair(padding), _pair(dilation))


class DeformConv2d(nn.Module):
    """``deform_conv2d`` with its weights."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True):
        super().__init__()
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.padding, self.dilation = (tuple(_pair(v)) for v in (kernel_size, stride, padding, dilation))
        self.weight = nn.Parameter(_C._torch.empty(out_channels, in_channels // groups, *self.kernel_size))
        if bias:
            self.bias = nn.Parameter(_C._torch.empty(out_channels))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight[0].numel())
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input, offset, mask=None):
        return deform_conv2d(input, offset, self.weight, self.bias, self.stride, self.padding, self.dilation, mask)

    def extra_repr(self):
        shown = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for name, default in (("padding", (0, 0)), ("dilation", (1, 1)), ("groups", 1)):
            if getattr(self, name) != default:
                shown += f", {name}={getattr(self, name)}"
        return shown + (", bias=False" if self.bias is None else "")

    def __repr__(self):
        return f"DeformConv2d({self.extra_repr()})"
