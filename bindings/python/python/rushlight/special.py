"""``torch.special``."""

from . import _C
from ._checks import written as _written
from ._functions import result_type as _result_type

_torch = _C._torch

globals().update({name: f for name, f in vars(_C._special).items() if not name.startswith("__")})


def _binary(name, compute):
    """A function of two tensors, one of which may be a number."""

    def function(input, other, *, out=None):
        tensors = [t for t in (input, other) if isinstance(t, _C.Tensor)]
        if not tensors:
            raise TypeError(f"{name}(): expected a Tensor, not {type(input).__name__}, {type(other).__name__}")
        like = tensors[0]
        a, b = (t if isinstance(t, _C.Tensor) else _torch.full((), t, dtype=like.dtype, device=like.device) for t in (input, other))
        made = compute(a, b)
        dtype = _result_type(a, b)
        # Tensors with dimensions decide among floating dtypes.
        made = made.to(dtype) if dtype.is_floating_point and made.dtype != dtype else made
        return _written(made, out)

    function.__name__ = function.__qualname__ = name
    return function


zeta = _binary("zeta", _C._special._zeta)
gammainc = _binary("igamma", _C._special._gammainc)
gammaincc = _binary("igammac", _C._special._gammaincc)


def __getattr__(name):
    from . import _orthogonal
    from ._functions import _missing

    if name in _orthogonal.__all__:
        globals()[name] = found = getattr(_orthogonal, name)
        return found

    return _missing(__name__, name)


def __dir__():
    from . import _orthogonal

    return sorted(set(globals()) | set(_orthogonal.__all__))
