"""``torch.signal.windows``: symmetric windows, or periodic ones with ``sym=False``."""

import functools
import math

from ... import _C

__all__ = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser", "nuttall"]

_torch = _C._torch


def _window(function):
    """A window of ``M`` weights from a function of the positions 0 to M - 1 and of the last position."""

    @functools.wraps(function)
    def window(M, *args, sym=True, dtype=None, layout=None, device=None, requires_grad=False, **kwargs):
        name = function.__name__
        dtype = _C.get_default_dtype() if dtype is None else dtype
        if not isinstance(M, int) or M < 0:
            raise ValueError(f"{name} requires non-negative window length, got M={M}")
        if layout not in (None, _C.strided):
            raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
        if not dtype.is_floating_point or dtype.itemsize < 4:
            raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
        if M < 2:
            made = _torch.ones(M, dtype=_C.float64)
            function(made, 1.0, *args, **kwargs)  # Checks the arguments.
        else:
            made = function(_torch.arange(M, dtype=_C.float64), float(M - 1 if sym else M), *args, **kwargs)
        return made.to(device="cpu" if device is None else device, dtype=dtype).requires_grad_(requires_grad)

    return window


def _cosines(k, last, weights):
    return sum((-1) ** i * w * (2 * math.pi * i * k / last).cos() for i, w in enumerate(weights))


@_window
def exponential(k, last, *, center=None, tau=1.0):
    """Decays from the centre to both sides."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if center is not None and last == len(k) - 1:
        raise ValueError("Center must be None for symmetric windows")
    return (-(k - (last / 2 if center is None else center)).abs() / tau).exp()


@_window
def cosine(k, last):
    """One arch of a sine."""
    return (math.pi * (k + 0.5) / (last + 1)).sin()


@_window
def gaussian(k, last, *, std=1.0):
    """A normal density of a standard deviation, one at the centre."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return (-((k - last / 2) / std) ** 2 / 2).exp()


@_window
def kaiser(k, last, *, beta=12.0):
    """Kaiser's window of Bessel functions."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    from ...special import i0

    inside = (1 - (2 * k / last - 1) ** 2).clamp(min=0)
    return i0(beta * inside.sqrt()) / i0(_C.tensor(float(beta), dtype=_C.float64))


@_window
def general_cosine(k, last, *, a):
    """A sum of cosines with weights of alternating sign."""
    if not isinstance(a, (list, tuple)):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _cosines(k, last, a)


@_window
def general_hamming(k, last, *, alpha=0.54):
    """``alpha - (1 - alpha) cos``."""
    return _cosines(k, last, [alpha, 1.0 - alpha])


@_window
def hamming(k, last):
    """Hamming's window."""
    return _cosines(k, last, [0.54, 0.46])


@_window
def hann(k, last):
    """Hann's window."""
    return _cosines(k, last, [0.5, 0.5])


@_window
def blackman(k, last):
    """Blackman's window."""
    return _cosines(k, last, [0.42, 0.5, 0.08])


@_window
def nuttall(k, last):
    """Nuttall's window of four terms."""
    return _cosines(k, last, [0.3635819, 0.4891775, 0.1365995, 0.0106411])


@_window
def bartlett(k, last):
    """A triangle."""
    return 1 - (2 * k / last - 1).abs()
