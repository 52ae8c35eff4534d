"""Where PyTorch has the class of exported programs."""

from . import ExportedProgram  # noqa: F401
