"""Where PyTorch has the class of compiled modules."""

from . import ScriptModule, script  # noqa: F401
