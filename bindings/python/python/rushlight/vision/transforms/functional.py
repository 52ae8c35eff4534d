"""Transforms as functions: ``torchvision.transforms.functional``. Each takes a Pillow image or a tensor and returns the same type."""

import enum
import functools
import math

from ... import _C
from .._image import from_pixels, is_image, is_pil, like, pixels

Tensor = _C.Tensor


class InterpolationMode(enum.Enum):
    """Interpolation."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_PILLOW = {0: InterpolationMode.NEAREST, 2: InterpolationMode.BILINEAR, 3: InterpolationMode.BICUBIC}


def _mode(interpolation):
    if not isinstance(interpolation, InterpolationMode):
        interpolation = _PILLOW.get(int(interpolation), interpolation)
    if interpolation not in _PILLOW.values() and interpolation is not InterpolationMode.NEAREST_EXACT:
        raise NotImplementedError(f"interpolation {interpolation} is not supported; NEAREST, BILINEAR and BICUBIC are")
    return interpolation


def get_dimensions(img):
    """Channels, height and width."""
    p = pixels(img)
    return [p.shape[-3] if p.dim() > 2 else 1, p.shape[-2], p.shape[-1]]


def get_image_size(img):
    """Width and height."""
    return get_dimensions(img)[:0:-1]


def get_image_num_channels(img):
    """Channels."""
    return get_dimensions(img)[0]


# Conversions.


def pil_to_tensor(pic):
    """An image's bytes as a tensor ``[channels, height, width]``."""
    if isinstance(pic, Tensor) or not is_image(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    return pixels(pic)


def to_tensor(pic):
    """An image, or an array ``[height, width, channels]``, as a tensor ``[channels, height, width]``: bytes as floats from 0 to 1."""
    if is_image(pic):
        return pixels(pic).to(_C.float32).div_(255)
    if type(pic).__name__ == "ndarray":
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        tensor = _C.as_tensor(pic[:, :, None] if pic.ndim == 2 else pic).permute((2, 0, 1)).contiguous()
        return tensor.to(_C.float32).div_(255) if tensor.dtype == _C.uint8 else tensor
    raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")


def to_pil_image(pic, mode=None):
    """A tensor ``[channels, height, width]`` or an array ``[height, width, channels]`` as an image: floats are from 0 to 1."""
    if isinstance(pic, Tensor):
        chw = pic.detach()
        chw = chw.unsqueeze(0) if chw.dim() == 2 else chw
    elif type(pic).__name__ == "ndarray":
        chw = _C.as_tensor(pic[:, :, None] if pic.ndim == 2 else pic).permute((2, 0, 1))
    else:
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    if chw.dim() != 3 or chw.shape[0] not in (1, 2, 3, 4):
        raise ValueError(f"pic should be 2/3 dimensional with up to 4 channels. Got shape {tuple(chw.shape)}.")
    if chw.is_floating_point():
        chw = chw.mul(255).to(_C.uint8)
    natural = {1: ("L",), 2: ("LA",), 3: ("RGB", "YCbCr", "HSV"), 4: ("RGBA", "CMYK", "RGBX")}[chw.shape[0]]
    if mode is not None and mode != natural[0]:
        if mode in natural:
            raise NotImplementedError(f"to_pil_image: mode {mode} is not supported; convert the image to {natural[0]} first, or install Pillow")
        raise ValueError(f"Only modes {natural} are supported for {chw.shape[0]}-channel inputs")
    return from_pixels(chw.to(_C.uint8))


def convert_image_dtype(image, dtype=_C.float32):
    """Converts a tensor's dtype and rescales its values to that dtype's range."""
    if image.dtype == dtype:
        return image
    from ... import iinfo

    if image.is_floating_point():
        if dtype in (_C.float16, _C.bfloat16, _C.float32, _C.float64):
            return image.to(dtype)
        return image.mul(iinfo(dtype).max + 1.0 - 1e-3).to(dtype)
    largest = iinfo(image.dtype).max if image.dtype != _C.bool else 1
    if dtype in (_C.float16, _C.bfloat16, _C.float32, _C.float64):
        return image.to(dtype) / largest
    wanted = iinfo(dtype).max
    if largest > wanted:
        return image.div((largest + 1) // (wanted + 1), rounding_mode="floor").to(dtype)
    return image.to(dtype) * ((wanted + 1) // (largest + 1))


def normalize(tensor, mean, std, inplace=False):
    """``(tensor - mean) / std`` by channels."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if tensor.dim() < 3:
        raise ValueError(f"Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = {tensor.size()}")
    mean, std = (_C.as_tensor(v, dtype=tensor.dtype, device=tensor.device).reshape((-1, 1, 1)) for v in (mean, std))
    if (std == 0).any():
        raise ValueError(f"std evaluated to zero after conversion to {tensor.dtype}, leading to division by zero.")
    return (tensor if inplace else tensor.clone()).sub_(mean).div_(std)


# Geometry.


def _computed(image, function):
    """A function of floats for images of any dtype; bytes are rounded."""
    if image.is_floating_point():
        return function(image)
    from ... import iinfo

    return function(image.to(_C.float32)).round().clamp(iinfo(image.dtype).min, iinfo(image.dtype).max).to(image.dtype)


def _batched(image, function):
    """A function of ``[count, channels, height, width]`` for images with any number of dimensions before those."""
    shape = image.shape
    flat = image.reshape((-1, *shape[-3:])) if image.dim() != 2 else image.reshape((1, 1, *shape))
    result = function(flat)
    return result.reshape((*shape[:-3], *result.shape[1:])) if image.dim() != 2 else result[0, 0]


@functools.lru_cache(maxsize=32)
def _cubic_weights(inputs, outputs):
    """The interpolation matrix of Keys' cubic, widened by the change of size."""
    scale = inputs / outputs
    stretch = max(scale, 1.0)
    rows = []
    for i in range(outputs):
        centre = scale * (i + 0.5)
        row = []
        for j in range(inputs):
            x = abs((j + 0.5 - centre) / stretch)
            row.append(1.5 * x**3 - 2.5 * x**2 + 1 if x < 1 else -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0)
        total = sum(row)
        rows.append([w / total for w in row])
    return _C.tensor(rows, dtype=_C.float32)


def _resized(image, height, width, mode, antialias, in_bytes):
    if (height, width) == tuple(image.shape[-2:]):
        return image
    if in_bytes and image.dtype is _C.uint8 and mode in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC):
        from ...nn.functional import interpolate

        return _batched(image, lambda b: interpolate(b, size=(height, width), mode=mode.value, align_corners=False, antialias=bool(antialias)))
    if mode is InterpolationMode.BILINEAR and image.dim() == 3 and image.dtype in (_C.uint8, _C.float32):
        return _C._vision.resize(image.contiguous(), height, width, antialias)
    if mode is InterpolationMode.BILINEAR and antialias:
        return _batched(image, lambda b: _C._torch.stack(
            [_computed(i, lambda f: _C._vision.resize(f.to(_C.float32).contiguous(), height, width, True)) for i in b]))
    if mode is InterpolationMode.BICUBIC and antialias:
        tall, wide = _cubic_weights(image.shape[-2], height), _cubic_weights(image.shape[-1], width)
        return _computed(image, lambda f: tall @ f @ wide.T)
    from ...nn.functional import interpolate

    options = {"align_corners": False} if mode in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC) else {}
    return _batched(image, lambda b: _computed(b, lambda f: interpolate(f, size=(height, width), mode=mode.value, **options)))


def resize(img, size, interpolation=InterpolationMode.BILINEAR, max_size=None, antialias=True):
    """The image in another size: ``(height, width)``, or a number for the shorter side. Bytes are computed as floats and rounded once."""
    return _resize(img, size, interpolation, max_size, antialias, in_bytes=False)


def _resize(img, size, interpolation, max_size, antialias, in_bytes):
    mode = _mode(interpolation)
    _, height, width = get_dimensions(img)
    size = [size] if isinstance(size, int) else list(size)
    if len(size) == 2:
        if max_size is not None:
            raise ValueError("max_size goes with a size that is one number, the length of the shorter side")
        new_height, new_width = size
    elif len(size) == 1:
        short, long = sorted((height, width))
        new_short, new_long = size[0], int(size[0] * long / short)
        if max_size is not None and new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
        new_height, new_width = (new_short, new_long) if height <= width else (new_long, new_short)
    else:
        raise ValueError("Size must be an int or a 1 or 2 element tuple/list")
    if is_pil(img):
        resample = {v: k for k, v in _PILLOW.items()}.get(mode, 0)
        return img.resize((new_width, new_height), resample)
    return like(img, _resized(pixels(img), new_height, new_width, mode, antialias, in_bytes))


def pad(img, padding, fill=0, padding_mode="constant"):
    """The image with a border: one width for all sides, ``(left and right, top and bottom)``, or ``(left, top, right, bottom)``."""
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    padding = [padding] if isinstance(padding, int) else list(padding)
    if len(padding) not in (1, 2, 4):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple")
    left, top, right, bottom = {1: padding * 4, 2: padding * 2, 4: padding}[len(padding)]
    p = pixels(img)
    height, width = p.shape[-2:]
    if padding_mode == "constant":
        result = p.new_empty((*p.shape[:-2], height + top + bottom, width + left + right))
        values = list(fill) if isinstance(fill, (list, tuple)) else [fill]
        result.copy_(_C.tensor(values).to(p.dtype).reshape((-1, 1, 1)).expand(result.shape))
        # Borders below zero cut off.
        y, x = max(top, 0), max(left, 0)
        part = p[..., max(-top, 0) : height - max(-bottom, 0), max(-left, 0) : width - max(-right, 0)]
        result[..., y : y + part.shape[-2], x : x + part.shape[-1]] = part
        return like(img, result)

    def places(before, size, after):
        if padding_mode == "edge":
            found = [min(max(i, 0), size - 1) for i in range(-before, size + after)]
        elif padding_mode == "reflect":
            cycle = [*range(size), *range(size - 2, 0, -1)] or [0]
            found = [cycle[i % len(cycle)] for i in range(-before, size + after)]
        else:
            cycle = [*range(size), *range(size - 1, -1, -1)]
            found = [cycle[i % len(cycle)] for i in range(-before, size + after)]
        return _C.tensor(found, dtype=_C.int64)

    return like(img, p.index_select(-2, places(top, height, bottom)).index_select(-1, places(left, width, right)))


def crop(img, top, left, height, width):
    """A crop of the image, zero outside."""
    p = pixels(img)
    h, w = p.shape[-2:]
    part = p[..., max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)]
    if top < 0 or left < 0 or top + height > h or left + width > w:
        part = pad(part, [max(-left, 0), max(-top, 0), max(left + width - max(w, left), 0), max(top + height - max(h, top), 0)])
    return like(img, part)


def center_crop(img, output_size):
    """The centre of the image, padded with zeros if it is too small."""
    size = [output_size] * 2 if isinstance(output_size, int) else list(output_size) * (2 if len(output_size) == 1 else 1)
    (height, width), (_, h, w) = size, get_dimensions(img)
    if height > h or width > w:
        x, y = max(width - w, 0), max(height - h, 0)
        img = pad(img, [x // 2, y // 2, (x + 1) // 2, (y + 1) // 2])
        _, h, w = get_dimensions(img)
    return crop(img, int(round((h - height) / 2.0)), int(round((w - width) / 2.0)), height, width)


def resized_crop(img, top, left, height, width, size, interpolation=InterpolationMode.BILINEAR, antialias=True):
    """A crop of the image, resized."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def hflip(img):
    """Horizontal flip."""
    return like(img, pixels(img).flip(-1))


def vflip(img):
    """Vertical flip."""
    return like(img, pixels(img).flip(-2))


def five_crop(img, size):
    """The four corners and the centre."""
    height, width = (size, size) if isinstance(size, int) else (list(size) * 2)[:2]
    _, h, w = get_dimensions(img)
    if width > w or height > h:
        raise ValueError(f"Requested crop size {(height, width)} is bigger than input size {(h, w)}")
    corners = [(0, 0), (0, w - width), (h - height, 0), (h - height, w - width)]
    return (*(crop(img, top, left, height, width) for top, left in corners), center_crop(img, [height, width]))


def ten_crop(img, size, vertical_flip=False):
    """``five_crop`` of the image and of its flip."""
    return five_crop(img, size) + five_crop(vflip(img) if vertical_flip else hflip(img), size)


def _sampled(p, matrix, size, mode, fill, centre, shift=(0.0, 0.0)):
    """Samples pixels at ``matrix (x - shift)`` from the centre for every position of the new image."""
    (a, b), (c, d) = matrix
    height, width = size
    x = _C._torch.arange(width, dtype=_C.float32) + (0.5 - width * 0.5 - shift[0])
    y = (_C._torch.arange(height, dtype=_C.float32) + (0.5 - height * 0.5 - shift[1])).unsqueeze(1)
    h, w = p.shape[-2:]
    u = (x * a + y * b + centre[0]) * (2.0 / w) - 1
    v = (x * c + y * d + centre[1]) * (2.0 / h) - 1
    return _at(p, _C._torch.stack([u, v], -1).unsqueeze(0), mode, fill)


def _at(p, grid, mode, fill):
    """Samples pixels at the places of a grid, which count from -1 to 1; ``fill`` lies around the image."""
    from ...nn.functional import grid_sample

    def sample(batch):
        places = grid.expand(batch.shape[0], -1, -1, -1).to(batch.dtype)
        if fill is None:
            return grid_sample(batch, places, mode=mode.value, align_corners=False)
        values = _C.tensor(list(fill) if isinstance(fill, (list, tuple)) else [fill], dtype=batch.dtype).reshape((1, -1, 1, 1))
        found = grid_sample(_C._torch.cat([batch, _C._torch.ones_like(batch[:, :1])], 1), places, mode=mode.value, align_corners=False)
        # How much of a pixel lies in the image. Pixels at its edge are weighted twice, as torchvision's are.
        found, inside = found[:, :-1], found[:, -1:]
        return _C._torch.where(inside < 0.5, values, found) if mode is InterpolationMode.NEAREST else found * inside + (1.0 - inside) * values

    return _batched(p, lambda batch: _computed(batch, sample))


def _checked(mode):
    mode = _mode(mode)
    if mode not in (InterpolationMode.NEAREST, InterpolationMode.BILINEAR):
        raise ValueError(f"interpolation {mode} is not supported here; NEAREST and BILINEAR are")
    return mode


def rotate(img, angle, interpolation=InterpolationMode.NEAREST, expand=False, center=None, fill=None):
    """Rotates the image counter-clockwise by degrees."""
    mode, p = _checked(interpolation), pixels(img)
    h, w = p.shape[-2:]
    turn = math.radians(angle)
    cos, sin = math.cos(turn), math.sin(turn)
    size = (h, w)
    middle = (w * 0.5, h * 0.5)
    shift = (0.0, 0.0)
    if expand:
        size = (math.ceil(round(abs(w * sin) + abs(h * cos), 5)), math.ceil(round(abs(w * cos) + abs(h * sin), 5)))
    elif center is not None:
        middle = tuple(center)
        shift = (center[0] - w * 0.5, center[1] - h * 0.5)
    return like(img, _sampled(p, ((cos, -sin), (sin, cos)), size, mode, fill, middle, shift))


def affine(img, angle, translate, scale, shear, interpolation=InterpolationMode.NEAREST, fill=None, center=None):
    """Rotates the image clockwise by degrees, shears, scales and translates it."""
    mode, p = _checked(interpolation), pixels(img)
    if scale <= 0.0:
        raise ValueError("Argument scale should be positive")
    h, w = p.shape[-2:]
    shear = [shear, 0.0] if isinstance(shear, (int, float)) else list(shear) * (2 if len(shear) == 1 else 1)
    turn, sx, sy = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    a = scale * math.cos(turn - sy) / math.cos(sy)
    b = scale * (-math.cos(turn - sy) * math.tan(sx) / math.cos(sy) - math.sin(turn))
    c = scale * math.sin(turn - sy) / math.cos(sy)
    d = scale * (-math.sin(turn - sy) * math.tan(sx) / math.cos(sy) + math.cos(turn))
    size = a * d - b * c
    inverse = ((d / size, -b / size), (-c / size, a / size))
    middle = (w * 0.5, h * 0.5) if center is None else tuple(center)
    shift = (translate[0] + middle[0] - w * 0.5, translate[1] + middle[1] - h * 0.5)
    return like(img, _sampled(p, inverse, (h, w), mode, fill, middle, shift))


# Colours.


def _per_image(img, function):
    p = pixels(img)
    if p.dim() == 3:
        return like(img, function(p.contiguous()))
    return _batched(p, lambda batch: _C._torch.stack([function(one) for one in batch]))


def _adjustment(name, doc):
    adjust = getattr(_C._vision, name)

    def function(img, factor):
        if factor < 0 and name != "adjust_hue":
            raise ValueError(f"{name[7:]}_factor ({factor}) is not non-negative.")
        if name == "adjust_hue" and not -0.5 <= factor <= 0.5:
            raise ValueError(f"hue_factor ({factor}) is not in [-0.5, 0.5].")
        return _per_image(img, lambda p: adjust(p, float(factor)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


adjust_brightness = _adjustment("adjust_brightness", "The image brighter (above 1) or darker.")
adjust_contrast = _adjustment("adjust_contrast", "The image with more (above 1) or less contrast.")
adjust_saturation = _adjustment("adjust_saturation", "The image with more (above 1) or less colour.")
adjust_hue = _adjustment("adjust_hue", "The image with its hues turned by a part of the circle, -0.5 to 0.5.")


def rgb_to_grayscale(img, num_output_channels=1):
    """A colour image in grey, with one or three equal channels."""
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")

    def grey(p):
        one = _C._vision.rgb_to_grayscale(p)
        return one.expand(num_output_channels, -1, -1).contiguous() if num_output_channels == 3 else one

    return _per_image(img, grey)


to_grayscale = rgb_to_grayscale


def adjust_gamma(img, gamma, gain=1):
    """``gain * img ** gamma`` of values from 0 to 1."""
    if gamma < 0:
        raise ValueError("Gamma should be a non-negative real number")

    def bent(p):
        floats = convert_image_dtype(p, _C.float32) if not p.is_floating_point() else p
        return convert_image_dtype((gain * floats**gamma).clamp(0, 1), p.dtype)

    return _per_image(img, bent)


def invert(img):
    """Inverts the image."""
    return _per_image(img, lambda p: 1.0 - p if p.is_floating_point() else 255 - p)


def solarize(img, threshold):
    """Inverts pixels at or above the threshold."""
    return _per_image(img, lambda p: _C._torch.where(p >= threshold, 1.0 - p if p.is_floating_point() else 255 - p, p))


def posterize(img, bits):
    """Keeps only the first bits of each byte."""
    return _per_image(img, lambda p: p.bitwise_and(_C.tensor(256 - 2 ** (8 - bits), dtype=_C.uint8)))


def gaussian_blur(img, kernel_size, sigma=None):
    """Gaussian blur."""
    from ...nn.functional import conv2d, pad as pad_tensor

    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if any(k % 2 == 0 or k < 1 for k in sizes):
        raise ValueError(f"kernel_size should have odd and positive integers. Got {sizes}")
    sigmas = [0.3 * ((k - 1) * 0.5 - 1) + 0.8 for k in sizes] if sigma is None else [sigma] * 2 if isinstance(sigma, (int, float)) else list(sigma)

    def curve(size, spread):
        x = _C._torch.linspace(-(size - 1) * 0.5, (size - 1) * 0.5, size)
        values = (-0.5 * (x / spread) ** 2).exp()
        return values / values.sum()

    # Sizes and deviations are given as (horizontal, vertical).
    wide, tall = curve(sizes[0], sigmas[0]), curve(sizes[1], sigmas[1])
    edge = [sizes[0] // 2, sizes[0] // 2, sizes[1] // 2, sizes[1] // 2]

    def blur(batch):
        channels = batch.shape[1]
        kernel = (tall.unsqueeze(1) * wide).to(batch.dtype).expand(channels, 1, -1, -1).contiguous()
        return conv2d(pad_tensor(batch, edge, mode="reflect"), kernel, groups=channels)

    return like(img, _batched(pixels(img), lambda batch: _computed(batch, blur)))


def erase(img, i, j, h, w, v, inplace=False):
    """A tensor with a rectangle filled."""
    if not isinstance(img, Tensor):
        raise TypeError(f"erase: expects a tensor, got {type(img)}")
    img = img if inplace else img.clone()
    img[..., i : i + h, j : j + w] = v
    return img


from ._warps import adjust_sharpness, autocontrast, elastic_transform, equalize, perspective  # noqa: E402,F401
