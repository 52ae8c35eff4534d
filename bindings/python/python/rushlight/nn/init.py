"""Initial values of parameters: ``torch.nn.init``."""

from __future__ import annotations

import functools
import math
import warnings

from .. import _C
from ..overrides import _modes, handle_torch_function

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_", "sparse_",
    "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]

Tensor = _C.Tensor

#: Functions that fill tensors do nothing while this is not empty: ``nn.utils.skip_init``.
_suspended: list = []


#: Functions that modes of ``torch.overrides`` see, as in PyTorch: libraries make empty models by a mode that leaves
#: them out.
_SEEN = frozenset(("uniform_", "normal_", "constant_", "kaiming_uniform_"))


def _fills(function):
    """A function that fills its first argument, without recording."""

    name = function.__name__

    @functools.wraps(function)
    def fill(tensor, *args, **kwargs):
        if _suspended:
            return tensor
        # Modes that handle ops see what it is made of.
        if _modes.stack and name in _SEEN and not getattr(_modes.stack[-1], "_handles_ops", False) and not _C._is_torch_function_all_disabled():
            return handle_torch_function(fill, (tensor,), tensor, *args, **kwargs)
        recording = _C._set_grad_enabled(False)
        try:
            return function(tensor, *args, **kwargs)
        finally:
            _C._set_grad_enabled(recording)

    return fill


_GAINS = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}
_LINEAR = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid")


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The recommended gain of weights before a nonlinearity.

    >>> calculate_gain("leaky_relu", 1.0)
    1.0
    """
    if nonlinearity in _LINEAR:
        return 1
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


@_fills
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator=None) -> Tensor:
    """Values drawn uniformly from ``a`` to ``b``."""
    return tensor.uniform_(a, b, generator=generator)


@_fills
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator=None) -> Tensor:
    """Values drawn from a normal distribution."""
    return tensor.normal_(mean, std, generator=generator)


@_fills
def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator=None) -> Tensor:
    """Values drawn from a normal distribution, none outside ``[a, b]``."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect.", stacklevel=3
        )

    def below(x):
        return (1.0 + math.erf((x - mean) / (std * math.sqrt(2.0)))) / 2.0

    # Samples the range of the distribution function uniformly and applies its inverse.
    tensor.uniform_(2 * below(a) - 1, 2 * below(b) - 1, generator=generator)
    return tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean).clamp_(min=a, max=b)


@_fills
def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere."""
    return tensor.fill_(val)


@_fills
def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return tensor.fill_(1.0)


@_fills
def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return tensor.zero_()


@_fills
def eye_(tensor: Tensor) -> Tensor:
    """A matrix with ones on its diagonal."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return tensor.copy_(_C._torch.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


@_fills
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Identity weights of a convolution, for the channels that input and output share."""
    if tensor.dim() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    out_channels, in_channels, *kernel = tensor.shape
    if out_channels % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = out_channels // groups
    tensor.zero_()
    centre = tuple(size // 2 for size in kernel)
    for group in range(groups):
        for channel in range(min(per_group, in_channels)):
            tensor[(group * per_group + channel, channel, *centre)] = 1
    return tensor


@_fills
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator=None) -> Tensor:
    """Glorot's initialisation, uniform."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / float(fan_in + fan_out))
    return tensor.uniform_(-bound, bound, generator=generator)


@_fills
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator=None) -> Tensor:
    """Glorot's initialisation, normal."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return tensor.normal_(0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator=generator)


def _no_elements(tensor: Tensor) -> bool:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=4)
        return True
    return False


@_fills
def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator=None) -> Tensor:
    """He's initialisation, uniform."""
    if _no_elements(tensor):
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    bound = math.sqrt(3.0) * std
    return tensor.uniform_(-bound, bound, generator=generator)


@_fills
def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator=None) -> Tensor:
    """He's initialisation, normal."""
    if _no_elements(tensor):
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    return tensor.normal_(0, std, generator=generator)


@_fills
def orthogonal_(tensor: Tensor, gain: float = 1, generator=None) -> Tensor:
    """A matrix with orthonormal rows or columns; dimensions after the first count as columns."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows, cols = tensor.size(0), tensor.numel() // tensor.size(0)
    drawn = tensor.new_empty((rows, cols)).normal_(0, 1, generator=generator)
    q, r = _C._linalg.qr(drawn.t() if rows < cols else drawn)
    # The signs make the distribution uniform.
    q = q * r.diagonal().sign()
    if rows < cols:
        q = q.t()
    return tensor.copy_(q.reshape(tensor.shape)).mul_(gain)


@_fills
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator=None) -> Tensor:
    """A matrix of normal values in which a share of every column is zero."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    tensor.normal_(0, std, generator=generator)
    for column in range(cols):
        tensor[_C._torch.randperm(rows)[:zeros], column] = 0
    return tensor


def _deprecated(function):
    name = function.__name__[:-1]

    @functools.wraps(function)
    def old(*args, **kwargs):
        warnings.warn(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    old.__name__ = name
    return old


uniform, normal, constant, eye, dirac = map(_deprecated, (uniform_, normal_, constant_, eye_, dirac_))
xavier_uniform, xavier_normal = map(_deprecated, (xavier_uniform_, xavier_normal_))
kaiming_uniform, kaiming_normal = map(_deprecated, (kaiming_uniform_, kaiming_normal_))
orthogonal, sparse = map(_deprecated, (orthogonal_, sparse_))
