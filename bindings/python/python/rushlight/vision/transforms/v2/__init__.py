"""``torchvision.transforms.v2``: the transforms by their newer names. They take one image; boxes and masks are not changed along with it."""

from .... import _C
from ..._image import is_image, pixels
from . import functional
from ..functional import InterpolationMode  # noqa: F401
from .._augment import *  # noqa: F401,F403
from .._augment import __all__ as _drawn
from ..transforms import *  # noqa: F401,F403
from ..transforms import ConvertImageDtype, Module
from ..transforms import RandomResizedCrop as _RandomResizedCrop
from ..transforms import Resize as _Resize
from ..transforms import __all__ as _names

__all__ = [*_names, *_drawn, "Identity", "InterpolationMode", "ToDtype", "ToImage", "ToPureTensor", "functional"]


class Identity(Module):
    """Returns the image unchanged."""

    def forward(self, img):
        return img


class Resize(_Resize):
    """Resizes to ``(height, width)``, or the shorter side to a number."""

    def forward(self, img):
        return functional.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class RandomResizedCrop(_RandomResizedCrop):
    """A random crop of random size and aspect ratio, resized."""

    _crop = staticmethod(functional.resized_crop)


class ToImage(Module):
    """An image or an array as a tensor of the same values."""

    def forward(self, img):
        if is_image(img):
            return pixels(img)
        if type(img).__name__ == "ndarray":
            tensor = _C.as_tensor(img[:, :, None] if img.ndim == 2 else img)
            return tensor.permute((2, 0, 1)).contiguous()
        return img


class ToPureTensor(ToImage):
    """The image as a tensor."""


class ToDtype(Module):
    """Converts a tensor's dtype, and rescales its values to that dtype's range if ``scale``."""

    def __init__(self, dtype, scale=False):
        super().__init__()
        self.dtype, self.scale = dtype, scale

    def forward(self, img):
        return functional.convert_image_dtype(img, self.dtype) if self.scale else img.to(self.dtype)


ConvertDtype = ConvertImageDtype
