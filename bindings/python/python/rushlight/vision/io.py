"""Image files and tensors: ``torchvision.io``."""

from .. import _C
from .utils import write_png

__all__ = ["read_image", "write_png"]


def read_image(path, mode="UNCHANGED", apply_exif_orientation=False):
    """A PNG or JPEG file as ``[3, height, width]`` of uint8."""
    return _C._vision.read_image(path)
