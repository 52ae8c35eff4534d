"""``torchvision.transforms.v2.functional``: the functions by their newer names."""

from ..functional import *  # noqa: F401,F403
from ..functional import (  # noqa: F401
    InterpolationMode,
    _resize,
    convert_image_dtype,
    crop,
    get_dimensions,
    get_image_num_channels,
    hflip,
    pil_to_tensor,
    vflip,
)

horizontal_flip, vertical_flip = hflip, vflip
get_num_channels = get_image_num_channels


def resize(inpt, size, interpolation=InterpolationMode.BILINEAR, max_size=None, antialias=True):
    """The image in another size: ``(height, width)``, or a number for the shorter side. Bytes stay bytes, and are rounded after each dimension."""
    return _resize(inpt, size, interpolation, max_size, antialias, in_bytes=True)


def resized_crop(inpt, top, left, height, width, size, interpolation=InterpolationMode.BILINEAR, antialias=True):
    """A crop of the image, resized."""
    return resize(crop(inpt, top, left, height, width), size, interpolation, antialias=antialias)


def to_dtype(inpt, dtype=None, scale=False):
    """Converts a tensor's dtype, and rescales its values to that dtype's range if ``scale``."""
    from .... import float32

    dtype = float32 if dtype is None else dtype
    return convert_image_dtype(inpt, dtype) if scale else inpt.to(dtype)


def get_size(inpt):
    """Height and width."""
    return list(get_dimensions(inpt)[1:])


def to_image(inpt):
    """An image or an array as a tensor of the same values."""
    from . import ToImage

    return ToImage()(inpt)
