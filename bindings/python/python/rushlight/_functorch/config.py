"""``torch._functorch.config``: settings of a compiler that is not needed."""

import sys

from ..compiler import _Config

_made = _Config("functorch")
_made.__spec__ = __spec__
sys.modules[__name__] = _made
