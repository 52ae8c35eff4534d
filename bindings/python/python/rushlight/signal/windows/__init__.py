"""``torch.signal.windows``."""

from .windows import *  # noqa: F401,F403
from .windows import __all__  # noqa: F401
