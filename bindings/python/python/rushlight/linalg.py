"""``torch.linalg``."""

from . import _C

globals().update({name: f for name, f in vars(_C._linalg).items() if not name.startswith("__")})


class LinAlgError(RuntimeError):
    """A matrix that an algorithm cannot handle."""


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
