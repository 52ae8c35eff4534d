"""The old place of ``DTensor``."""

from ..tensor._api import *  # noqa: F401,F403
