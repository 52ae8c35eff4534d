"""Memory shared with other libraries: ``torch.utils.dlpack``."""

from .. import from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor):
    """A capsule with a tensor's memory, for another library's ``from_dlpack``."""
    return tensor.__dlpack__()
