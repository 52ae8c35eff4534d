"""``torch.utils.deterministic``: whether fresh memory is filled. It never is: results do not depend on it."""

import sys
import types


class _Deterministic(types.ModuleType):
    @property
    def fill_uninitialized_memory(self):
        """Whether memory of ``empty`` is filled under deterministic algorithms."""
        return False

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode):
        if mode:
            raise NotImplementedError("fill_uninitialized_memory: memory of torch.empty is not filled; use torch.zeros or torch.full")


sys.modules[__name__].__class__ = _Deterministic
