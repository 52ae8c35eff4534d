"""Modules without initial values."""

from __future__ import annotations

import inspect

from .. import init
from ..modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: type, *args, **kwargs) -> Module:
    """A module with uninitialised parameters, for loading values later."""
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    init._suspended.append(module_cls)
    try:
        return module_cls(*args, **kwargs)
    finally:
        init._suspended.pop()
