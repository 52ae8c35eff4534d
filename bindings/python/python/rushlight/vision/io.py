"""Image files and tensors: ``torchvision.io``."""

from .. import _C
from .utils import write_png

__all__ = ["read_image", "write_png"]


def read_image(path, mode="UNCHANGED", apply_exif_orientation=False):
    """A PNG or JPEG file as ``[3, height, width]`` of uint8, or as ``[1, height, width]`` if ``mode`` is ``GRAY``."""
    mode = getattr(mode, "name", mode)
    if mode not in ("UNCHANGED", "RGB", "GRAY"):
        raise NotImplementedError(f"read_image: mode {mode} is not supported; use RGB or GRAY, or install Pillow")
    if apply_exif_orientation:
        raise NotImplementedError("read_image: EXIF orientation is not supported; rotate the image with transforms, or install Pillow")
    image = _C._vision.read_image(path)
    return _C._vision.rgb_to_grayscale(image) if mode == "GRAY" else image
