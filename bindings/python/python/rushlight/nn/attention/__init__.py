"""Selection of attention's implementation: there is one, for every input."""

from __future__ import annotations

from contextlib import contextmanager
from enum import IntEnum

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(IntEnum):
    """PyTorch's names of implementations of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    __str__ = __repr__ = lambda self: f"SDPBackend.{self.name}"


@contextmanager
def sdpa_kernel(backends, set_priority: bool = False):
    """Checks the names; no further effect, since attention has one implementation."""
    backends = [backends] if isinstance(backends, SDPBackend) else list(backends)
    for backend in backends:
        if not isinstance(backend, SDPBackend):
            raise TypeError(f"sdpa_kernel: expected members of SDPBackend, got {type(backend).__name__}")
    if not backends:
        raise RuntimeError("sdpa_kernel: no backend was named")
    yield
