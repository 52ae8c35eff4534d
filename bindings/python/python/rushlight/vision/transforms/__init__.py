"""Image transforms: ``torchvision.transforms``."""

from . import functional  # noqa: F401
from .functional import InterpolationMode
from ._augment import *  # noqa: F401,F403
from ._augment import __all__ as _drawn
from .transforms import *  # noqa: F401,F403
from .transforms import __all__ as _names

__all__ = [*_names, *_drawn, "InterpolationMode", "functional", "v2"]


def __getattr__(name):
    if name == "v2":
        import importlib

        return importlib.import_module(".v2", __name__)
    from ..._functions import _missing

    return _missing("torchvision.transforms", name)
