"""Pooling without a row in the op table, composed of gathers and other pooling."""

from __future__ import annotations

import math

from .. import _C

__all__ = [
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "fractional_max_pool2d", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d", "fractional_max_pool3d_with_indices", "lp_pool3d",
]

Tensor = _C.Tensor
_nn = _C._nn
_torch = _C._torch


def whole_sizes(sizes):
    """Sizes of outputs, -1 for ``None``, the input's own size."""
    if isinstance(sizes, int) or sizes is None:
        return -1 if sizes is None else sizes
    return [-1 if size is None else size for size in sizes]


def _three(x) -> tuple:
    return (x,) * 3 if isinstance(x, int) else tuple(x)


def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """Power means of windows of three dimensions."""
    kernel = _three(kernel_size)
    total = _nn.avg_pool3d(input.pow(norm_type), kernel, None if stride is None else _three(stride), 0, ceil_mode) * math.prod(kernel)
    return (total.sign() * total.abs().relu()).pow(1.0 / norm_type)


def _combined(index: Tensor | None, part: Tensor) -> Tensor:
    """Places of windows over some dimensions and over one more: all pairs of windows, and within them all pairs of places."""
    if index is None:
        return part
    return (index[:, None, :, None] + part[None, :, None, :]).reshape(index.shape[0] * part.shape[0], -1)


def _largest(input: Tensor, index: Tensor, lead: tuple, out: tuple):
    """The largest element of every window, and its place. ``index``: ``[outputs, elements]``, or with ``lead`` in front."""
    flat = input.flatten(len(lead))
    outputs, elements = index.shape[-2:]
    index = index.expand(*lead, outputs, elements)
    if index.numel() == 0:
        return flat.reshape(-1)[:0].reshape(*lead, *out), _torch.zeros((*lead, *out), dtype=_C.int64, device=input.device)
    found, at = flat.gather(-1, index.flatten(-2)).reshape(*lead, outputs, elements).max(-1)
    places = index.gather(-1, at.unsqueeze(-1)).squeeze(-1)
    return found.reshape(*lead, *out), places.reshape(*lead, *out)


def adaptive_max_pool3d_with_indices(input, output_size, return_indices=False):
    """Largest elements of a given number of windows over three dimensions, and their indices."""
    if input.dim() not in (4, 5) or 0 in input.shape[1:]:
        raise RuntimeError(
            f"adaptive_max_pool3d(): Expected 4D or 5D tensor with non-zero size for non-batch dimensions, but input has sizes {list(input.shape)}"
        )
    size = tuple(input.shape[-3:])
    wanted = whole_sizes(output_size)
    wanted = tuple(n if w == -1 else w for n, w in zip(size, _three(wanted)))
    windows = []
    for n, w in zip(size, wanted):
        first = [i * n // w for i in range(w)]
        last = [-(-(i + 1) * n // w) for i in range(w)]
        extent = max((b - a for a, b in zip(first, last)), default=0)
        # Windows of one length: a shorter one repeats its last element, which changes no maximum.
        windows.append(_C.tensor([[min(a + j, b - 1) for j in range(extent)] for a, b in zip(first, last)], dtype=_C.int64))
    if 0 in wanted:
        empty = (*input.shape[:-3], *wanted)
        # Its backward pass is refused, as PyTorch's is.
        return _nn.adaptive_avg_pool3d(input, wanted), _torch.zeros(empty, dtype=_C.int64, device=input.device)
    index = None
    for part, stride in zip(windows, (size[1] * size[2], size[2], 1)):
        index = _combined(index, part.to(input.device) * stride)
    return _largest(input, index, tuple(input.shape[:-3]), wanted)


def adaptive_max_pool3d(input, output_size, return_indices=False):
    """Largest elements of a given number of windows, over three dimensions."""
    found = adaptive_max_pool3d_with_indices(input, output_size)
    return found if return_indices else found[0]


def _fractional(input, kernel_size, output_size, output_ratio, samples, dims: int):
    name = f"fractional_max_pool{dims}d"
    kernel = (kernel_size,) * dims if isinstance(kernel_size, int) else tuple(kernel_size)
    if input.dim() not in (dims + 1, dims + 2):
        raise RuntimeError(f"{name}: expected input of {dims + 1} or {dims + 2} dimensions, got {tuple(input.shape)}")
    if (output_size is None) == (output_ratio is None):
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    size = tuple(input.shape[-dims:])
    if output_size is None:
        ratio = (output_ratio,) * dims if isinstance(output_ratio, (int, float)) else tuple(output_ratio)
        wanted = tuple(int(n * r) for n, r in zip(size, ratio))
    else:
        wanted = (output_size,) * dims if isinstance(output_size, int) else tuple(output_size)
    if any(w < 1 or w + k - 1 > n for w, k, n in zip(wanted, kernel, size)):
        raise RuntimeError(f"{name}: {wanted} windows of {kernel} do not fit in an input of {size}")
    lead = tuple(input.shape[:-dims])
    batch, channels = lead if len(lead) == 2 else (1, lead[0])
    if samples is None:
        samples = _torch.rand((batch, channels, dims), dtype=input.dtype, device=input.device)
    return _nn._fractional_max_pool(input, list(kernel), list(wanted), samples)


def fractional_max_pool2d_with_indices(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """Largest elements of windows at random places of two dimensions, and their indices."""
    return _fractional(input, kernel_size, output_size, output_ratio, _random_samples, 2)


def fractional_max_pool2d(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
    """Largest elements of windows at random places of two dimensions."""
    found = _fractional(input, kernel_size, output_size, output_ratio, _random_samples, 2)
    return found if return_indices else found[0]


def fractional_max_pool3d_with_indices(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """Largest elements of windows at random places of three dimensions, and their indices."""
    return _fractional(input, kernel_size, output_size, output_ratio, _random_samples, 3)


def fractional_max_pool3d(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
    """Largest elements of windows at random places of three dimensions."""
    found = _fractional(input, kernel_size, output_size, output_ratio, _random_samples, 3)
    return found if return_indices else found[0]
