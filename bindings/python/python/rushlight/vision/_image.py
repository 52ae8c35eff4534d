"""Pillow images if it is installed, else a small class with the same attributes."""

import functools
import sys

from .. import _C

Tensor = _C.Tensor

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


class Image:
    """An image of bytes: the type of dataset samples if Pillow is not installed."""

    def __init__(self, pixels):
        """``pixels``: ``[channels, height, width]`` of uint8."""
        self._pixels = pixels

    @property
    def mode(self):
        return _MODES[self._pixels.shape[0]]

    @property
    def size(self):
        return (self.width, self.height)

    @property
    def width(self):
        return self._pixels.shape[2]

    @property
    def height(self):
        return self._pixels.shape[1]

    def getbands(self):
        return tuple(self.mode)

    def copy(self):
        return Image(self._pixels.clone())

    def convert(self, mode):
        """This image in another mode: ``L`` or ``RGB``."""
        if mode == self.mode:
            return self.copy()
        colours = self._pixels[:3] if self._pixels.shape[0] >= 3 else self._pixels[:1]
        if mode == "L":
            return Image(_C._vision.rgb_to_grayscale(colours.contiguous()))
        if mode == "RGB":
            return Image(colours.expand(3, -1, -1).contiguous())
        raise NotImplementedError(f"Image.convert: mode {mode} is not supported; install Pillow")

    def resize(self, size, resample=None):
        """This image in another size ``(width, height)``, bilinear."""
        if getattr(resample, "value", resample) not in (None, 2, "bilinear"):
            raise NotImplementedError(f"Image.resize: only bilinear (2), not {resample}; install Pillow")
        return Image(_C._vision.resize(self._pixels, size[1], size[0], True))

    def crop(self, box):
        """The part between left, top, right and bottom."""
        left, top, right, bottom = box
        return Image(self._pixels[:, top:bottom, left:right].contiguous())

    def tobytes(self):
        return _C._to_bytes(self._pixels.permute((1, 2, 0)).contiguous())

    def __array__(self, dtype=None, copy=None):
        pixels = self._pixels[0] if self._pixels.shape[0] == 1 else self._pixels.permute((1, 2, 0))
        array = pixels.contiguous().numpy()
        return array if dtype is None else array.astype(dtype)

    def save(self, fp, format=None):
        """Writes a PNG file."""
        if (format or str(fp).rsplit(".", 1)[-1]).lower() != "png":
            raise NotImplementedError(f"Image.save: only PNG files are written, not '{format or fp}'; install Pillow")
        from .io import write_png

        write_png(self._pixels, fp)

    def __eq__(self, other):
        return isinstance(other, Image) and self.size == other.size and self.mode == other.mode and self.tobytes() == other.tobytes()

    def __repr__(self):
        return f"<rushlight.vision.Image mode={self.mode} size={self.width}x{self.height}>"


@functools.cache
def pil():
    """``PIL.Image``, or None. The search runs once: a failing search costs more than an image."""
    try:
        from PIL import Image as module
    except ImportError:
        return None
    return module


def is_pil(image):
    return "PIL.Image" in sys.modules and isinstance(image, sys.modules["PIL.Image"].Image)


def is_image(value):
    """Whether a value is an image and not a tensor."""
    return isinstance(value, Image) or is_pil(value)


def pixels(image):
    """An image as ``[channels, height, width]``; a tensor unchanged."""
    if isinstance(image, Tensor):
        return image
    if isinstance(image, Image):
        return image._pixels
    if is_pil(image):
        if image.mode not in ("L", "RGB", "RGBA", "LA"):
            image = image.convert("L" if image.mode == "1" else "RGB")
        flat = _C.frombuffer(bytearray(image.tobytes()), dtype=_C.uint8)
        return flat.reshape((image.height, image.width, len(image.getbands()))).permute((2, 0, 1)).contiguous()
    raise TypeError(f"img should be PIL Image or Tensor. Got {type(image)}")


def from_pixels(chw):
    """Bytes as an image: Pillow's if it is installed."""
    module = pil()
    if module is None:
        return Image(chw.contiguous())
    channels, height, width = chw.shape
    return module.frombytes(_MODES[channels], (width, height), _C._to_bytes(chw.permute((1, 2, 0)).contiguous()))


def like(image, chw):
    """Pixels converted to the type of image they came from."""
    if isinstance(image, Tensor):
        return chw
    return Image(chw.contiguous()) if isinstance(image, Image) else from_pixels(chw)


def open_image(path):
    """A file as an RGB image."""
    module = pil()
    if module is None:
        return Image(_C._vision.read_image(path))
    with open(path, "rb") as file:
        return module.open(file).convert("RGB")
