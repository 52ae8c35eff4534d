"""``torch.utils.deterministic``: whether fresh memory is filled while deterministic algorithms are on."""

import sys
import types

from .. import _settings


class _Deterministic(types.ModuleType):
    @property
    def fill_uninitialized_memory(self):
        """Whether memory of ``empty`` is filled under deterministic algorithms: with NaN, or with the largest integer."""
        return _settings.fills_fresh_memory()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode):
        if not isinstance(mode, bool):
            raise TypeError(f"fill_uninitialized_memory must be a bool, but got {type(mode).__name__}")
        _settings.fill_fresh_memory(mode)


sys.modules[__name__].__class__ = _Deterministic
