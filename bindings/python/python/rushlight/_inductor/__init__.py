"""``torch._inductor``: settings of a compiler that is not needed. Models run without it (``torch.compile``)."""

import importlib.machinery
import sys

from ..compiler import _Config

config = _Config("inductor")
# Statements `import torch._inductor.config` ask for a module.
config.__spec__ = importlib.machinery.ModuleSpec(f"{__name__}.config", None)
sys.modules[f"{__name__}.config"] = config


def __getattr__(name):
    from .._functions import _missing

    return _missing(__name__, name)
