"""``torch.linalg``."""

from . import _C
from ._C import LinAlgError  # noqa: F401

globals().update({name: f for name, f in vars(_C._linalg).items() if not name.startswith("__")})


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
