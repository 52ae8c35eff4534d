"""The old place of ``torch.distributed.device_mesh``."""

from ..device_mesh import *  # noqa: F401,F403
