"""``torch.fft``."""

import warnings

from . import _C

_torch = _C._torch

globals().update({name: f for name, f in vars(_C._fft).items() if not name.startswith("__")})
__all__ = [name for name in vars(_C._fft) if not name.startswith("__")] + ["fftfreq", "rfftfreq"]


def _frequencies(numbers, n, d, out, dtype, device, requires_grad):
    made = numbers.to(dtype=dtype or _C.get_default_dtype(), device=device).mul_(1.0 / (n * d))
    if out is not None:
        if out.shape != made.shape:
            warnings.warn("The out tensor will be resized: its shape is not that of the result", UserWarning, stacklevel=3)
        return out.resize_(made.shape).copy_(made)
    return made.requires_grad_(requires_grad)


def fftfreq(n, d=1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    """The frequencies of a transform of ``n`` numbers at distance ``d``."""
    numbers = _torch.cat([_torch.arange((n + 1) // 2), _torch.arange(-(n // 2), 0)])
    return _frequencies(numbers, n, d, out, dtype, device, requires_grad)


def rfftfreq(n, d=1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    """The frequencies of the first half of a transform."""
    return _frequencies(_torch.arange(n // 2 + 1), n, d, out, dtype, device, requires_grad)


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
