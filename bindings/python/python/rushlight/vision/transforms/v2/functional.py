"""``torchvision.transforms.v2.functional``: the functions by their newer names."""

from ..functional import *  # noqa: F401,F403
from ..functional import (  # noqa: F401
    InterpolationMode,
    convert_image_dtype,
    get_dimensions,
    get_image_num_channels,
    hflip,
    pil_to_tensor,
    vflip,
)

horizontal_flip, vertical_flip = hflip, vflip
get_num_channels = get_image_num_channels


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
