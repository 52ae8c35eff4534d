"""Versions of what PyTorch may be built with; none of it is here."""

from ._version import __version__  # noqa: F401

cuda = hip = xpu = rocm = git_version = None
debug = False
