"""``torchvision.version``."""

from .._version import vision_version as __version__  # noqa: F401

cuda = git_version = None
