"""Padding."""

from __future__ import annotations

from ... import _C
from .module import Module
from .utils import _ntuple, _pair, _quadruple

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ReflectionPad1d",
    "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]

Tensor = _C.Tensor
_sextuple = _ntuple(6)


class _PadNd(Module):
    __constants__ = ["padding"]
    _mode = "constant"
    _tuple = staticmethod(_pair)

    def __init__(self, padding) -> None:
        super().__init__()
        self.padding = self._tuple(padding)

    def forward(self, input: Tensor) -> Tensor:
        return _C._nn.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    """The base of classes that pad with a value; they set ``padding``."""

    __constants__ = ["padding", "value"]

    def __init__(self, value: float) -> None:
        Module.__init__(self)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return _C._nn.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _CircularPadNd(_PadNd):
    """The base of classes that pad with the other end."""

    _mode = "circular"


class _ReflectionPadNd(_PadNd):
    """The base of classes that pad with a mirror image."""

    _mode = "reflect"


class _ReplicationPadNd(_PadNd):
    """The base of classes that pad with the outermost elements."""

    _mode = "replicate"


class ConstantPad1d(_ConstantPadNd):
    """Pads with a value at both ends."""

    def __init__(self, padding, value: float) -> None:
        super().__init__(value)
        self.padding = self._tuple(padding)


class ConstantPad2d(ConstantPad1d):
    """Pads the last two dimensions with a value."""

    _tuple = staticmethod(_quadruple)


class ConstantPad3d(ConstantPad1d):
    """Pads the last three dimensions with a value."""

    _tuple = staticmethod(_sextuple)


class ZeroPad1d(ConstantPad1d):
    """Pads with zeros at both ends."""

    def __init__(self, padding) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ZeroPad1d):
    """Pads the last two dimensions with zeros."""

    _tuple = staticmethod(_quadruple)


class ZeroPad3d(ZeroPad1d):
    """Pads the last three dimensions with zeros."""

    _tuple = staticmethod(_sextuple)


class CircularPad1d(_CircularPadNd):
    """Pads with the elements of the other end."""

    _mode = "circular"


class CircularPad2d(CircularPad1d):
    """Pads with the elements of the opposite sides."""

    _tuple = staticmethod(_quadruple)


class CircularPad3d(CircularPad1d):
    """Pads three dimensions with the elements of the opposite sides."""

    _tuple = staticmethod(_sextuple)


class ReflectionPad1d(_ReflectionPadNd):
    """Pads with reflected elements."""

    _mode = "reflect"


class ReflectionPad2d(ReflectionPad1d):
    """Pads two dimensions with reflected elements."""

    _tuple = staticmethod(_quadruple)


class ReflectionPad3d(ReflectionPad1d):
    """Pads three dimensions with reflected elements."""

    _tuple = staticmethod(_sextuple)


class ReplicationPad1d(_ReplicationPadNd):
    """Pads with repeated first and last elements."""

    _mode = "replicate"


class ReplicationPad2d(ReplicationPad1d):
    """Pads two dimensions with repeated border elements."""

    _tuple = staticmethod(_quadruple)


class ReplicationPad3d(ReplicationPad1d):
    """Pads three dimensions with repeated border elements."""

    _tuple = staticmethod(_sextuple)
