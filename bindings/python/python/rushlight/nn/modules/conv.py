"""Convolutions."""

from __future__ import annotations

import math

from ... import _C
from .. import init
from ..parameter import Parameter, UninitializedParameter
from .lazy import LazyModuleMixin
from .module import Module
from .utils import _ntuple, _pair, _reverse_repeat_tuple, _single, _triple

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
]

Tensor = _C.Tensor
_empty = _C._torch.empty
_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """The common part of convolutions: sizes, weights and initial values."""

    __constants__ = [
        "stride", "padding", "dilation", "groups", "padding_mode", "output_padding", "in_channels", "out_channels", "kernel_size",
    ]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: tuple, stride: tuple, padding, dilation: tuple, transposed: bool,
        output_padding: tuple, groups: int, bias: bool, padding_mode: str, device=None, dtype=None,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}")
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode must be one of {set(_MODES)}, but got padding_mode='{padding_mode}'")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = self._sides()
        channels = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(_empty((*channels, *kernel_size), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(_empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _sides(self):
        """The padding in the form of ``F.pad``."""
        if not isinstance(self.padding, str):
            return _reverse_repeat_tuple(self.padding, 2)
        sides = [0, 0] * len(self.kernel_size)
        if self.padding == "same":
            for i, (dilation, size) in enumerate(zip(self.dilation, self.kernel_size)):
                total = dilation * (size - 1)
                at = 2 * (len(self.kernel_size) - 1 - i)
                sides[at : at + 2] = total // 2, total - total // 2
        return sides

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        zeros = (0,) * len(self.kernel_size)
        if self.padding != zeros:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * len(self.dilation):
            text += f", dilation={self.dilation}"
        if self.output_padding != zeros:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text

    def __setstate__(self, state) -> None:
        super().__setstate__(state)
        if not hasattr(self, "padding_mode"):
            self.padding_mode = "zeros"


class _PlainConv(_ConvNd):
    """A convolution over ``len(sizes)`` dimensions; set by subclasses."""

    _tuple = staticmethod(_single)
    _function = staticmethod(_C._nn.conv1d)

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size, stride=1, padding=0, dilation=1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device=None, dtype=None,
    ) -> None:
        sizes = self._tuple
        super().__init__(
            in_channels, out_channels, sizes(kernel_size), sizes(stride), padding if isinstance(padding, str) else sizes(padding),
            sizes(dilation), False, sizes(0), groups, bias, padding_mode, device, dtype,
        )

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.padding_mode == "zeros":
            return self._function(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = _C._nn.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return self._function(padded, weight, bias, self.stride, self._tuple(0), self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        own = self._parameters
        weight = own["weight"] if "weight" in own else self.weight
        bias = own["bias"] if "bias" in own else self.bias
        return self._conv_forward(input, weight, bias)


class Conv1d(_PlainConv):
    """Convolution over one dimension."""


class Conv2d(_PlainConv):
    """Convolution over two dimensions.

    >>> import rushlight as torch
    >>> torch.nn.Conv2d(3, 8, kernel_size=3, padding=1)(torch.ones(1, 3, 5, 5)).shape
    torch.Size([1, 8, 5, 5])
    """

    _tuple = staticmethod(_pair)
    _function = staticmethod(_C._nn.conv2d)


class Conv3d(_PlainConv):
    """Convolution over three dimensions."""

    _tuple = staticmethod(_triple)
    _function = staticmethod(_C._nn.conv3d)


class _ConvTransposeNd(_ConvNd):
    """The common part of transposed convolutions."""

    _dims = 1
    _function = staticmethod(_C._nn.conv_transpose1d)

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size, stride=1, padding=0, output_padding=0, groups: int = 1, bias: bool = True,
        dilation=1, padding_mode: str = "zeros", device=None, dtype=None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        if isinstance(padding, str):
            raise TypeError(f"{type(self).__name__}: padding must be numbers, not '{padding}'")
        sizes = _ntuple(self._dims)
        super().__init__(
            in_channels, out_channels, sizes(kernel_size), sizes(stride), sizes(padding), sizes(dilation), True, sizes(output_padding),
            groups, bias, padding_mode, device, dtype,
        )

    def _output_padding(self, input: Tensor, output_size) -> tuple:
        """The output padding for a given output size."""
        if output_size is None:
            return self.output_padding
        dims = self._dims
        batched = input.dim() == dims + 2
        wanted = list(output_size)
        if len(wanted) == dims + (2 if batched else 1):
            wanted = wanted[-dims:]
        if len(wanted) != dims:
            raise ValueError(
                f"ConvTranspose{dims}D: for {input.dim()}D input, output_size must have {dims} or {input.dim()} elements "
                f"(got {len(output_size)})"
            )
        smallest = [
            (input.size(i - dims) - 1) * self.stride[i] - 2 * self.padding[i] + self.dilation[i] * (self.kernel_size[i] - 1) + 1
            for i in range(dims)
        ]
        largest = [size + stride - 1 for size, stride in zip(smallest, self.stride)]
        if any(not low <= size <= high for size, low, high in zip(wanted, smallest, largest)):
            raise ValueError(
                f"requested an output size of {wanted}, but valid sizes range from {smallest} to {largest} "
                f"(for an input of {input.size()[2 if batched else 1 :]})"
            )
        return tuple(size - low for size, low in zip(wanted, smallest))

    def forward(self, input: Tensor, output_size=None) -> Tensor:
        extra = self._output_padding(input, output_size)
        return self._function(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution over one dimension."""


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution over two dimensions."""

    _dims = 2
    _function = staticmethod(_C._nn.conv_transpose2d)


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution over three dimensions."""

    _dims = 3
    _function = staticmethod(_C._nn.conv_transpose3d)


class _ConvTransposeMixin(_ConvTransposeNd):
    """The old name of the base of transposed convolutions."""


class _LazyConvMixin(LazyModuleMixin):
    """A convolution whose ``in_channels`` the first input sets."""

    def __init__(self, out_channels: int, *args, **kwargs) -> None:
        # Built without channels; then the parameters are replaced by ones that have no size yet.
        super().__init__(0, 0, *args, **kwargs)
        self.out_channels = out_channels
        factory = {"device": self.weight.device, "dtype": self.weight.dtype}
        self.weight = UninitializedParameter(**factory)
        if self.bias is not None:
            self.bias = UninitializedParameter(**factory)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args, **kwargs) -> None:
        if not self.has_uninitialized_params():
            return
        dims = len(self.kernel_size)
        if input.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(
                f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {type(self).__name__}, "
                f"but got input of size: {input.shape}"
            )
        self.in_channels = input.shape[-dims - 1]
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        channels = (self.out_channels, self.in_channels // self.groups)
        if self.transposed:
            channels = (self.in_channels, self.out_channels // self.groups)
        self.weight.materialize((*channels, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


def _lazy(name: str, base: type) -> type:
    return type(name, (_LazyConvMixin, base), {
        "__doc__": f"A ``{base.__name__}`` whose ``in_channels`` the first input sets.", "__module__": __name__, "cls_to_become": base,
    })


LazyConv1d, LazyConv2d, LazyConv3d = (_lazy("Lazy" + c.__name__, c) for c in (Conv1d, Conv2d, Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _lazy("Lazy" + c.__name__, c) for c in (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
)
