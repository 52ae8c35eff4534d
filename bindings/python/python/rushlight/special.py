"""``torch.special``."""

from . import _C

globals().update({name: f for name, f in vars(_C._special).items() if not name.startswith("__")})


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
