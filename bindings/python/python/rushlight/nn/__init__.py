"""Neural networks: ``torch.nn``."""

from . import functional, init, modules, parallel, parameter, utils  # noqa: F401
from .modules import *  # noqa: F401,F403
from .modules import __all__ as _modules
from .parallel import DataParallel  # noqa: F401
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter  # noqa: F401

__all__ = [*_modules, "Buffer", "DataParallel", "LinearCrossEntropyOptions", "Parameter", "UninitializedBuffer", "UninitializedParameter"]


def factory_kwargs(kwargs):
    """The factory keywords of ``kwargs``: device, dtype, memory_format."""
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    unexpected = kwargs.keys() - simple - {"factory_kwargs"}
    if unexpected:
        raise TypeError(f"unexpected kwargs {unexpected}")
    made = dict(kwargs.get("factory_kwargs", {}))
    for name in simple & kwargs.keys():
        if name in made:
            raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
        made[name] = kwargs[name]
    return made


#: Packages that are imported on first use.
_PACKAGES = frozenset(("attention", "common_types", "grad"))


def __getattr__(name):
    if name in _PACKAGES:
        import importlib

        return importlib.import_module("." + name, __name__)
    if name == "LinearCrossEntropyOptions":
        from ._linear_loss import LinearCrossEntropyOptions

        return LinearCrossEntropyOptions
    from .._functions import _missing

    return _missing(__name__, name)
