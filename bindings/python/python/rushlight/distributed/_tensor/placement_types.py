"""The old place of placements."""

from ..tensor.placement_types import *  # noqa: F401,F403
