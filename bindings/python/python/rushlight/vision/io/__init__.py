"""Image files and tensors: ``torchvision.io``."""

from ... import _absent
from .image import *  # noqa: F403
from .image import __all__

_absent.fill(globals(), "torchvision.io", "PNG and JPEG files are read; use Pillow or PyAV for others", "decode_avif decode_gif decode_heic decode_webp VideoReader read_video read_video_timestamps write_video")
__all__ = list(__all__)
