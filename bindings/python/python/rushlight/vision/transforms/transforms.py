"""Transforms as callable objects. Random numbers come from the default generator."""

import math
import random

from ... import _C
from ...nn import Module
from . import functional as F
from .functional import InterpolationMode

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "FiveCrop", "GaussianBlur", "Grayscale", "Lambda", "Normalize", "PILToTensor",
    "Pad", "RandomAffine", "RandomApply", "RandomChoice", "RandomCrop", "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip", "RandomInvert",
    "RandomOrder", "RandomPosterize", "RandomResizedCrop", "RandomRotation", "RandomSolarize", "RandomVerticalFlip", "Resize", "TenCrop",
    "ToPILImage", "ToTensor",
]


def _chance(p):
    return _C._torch.rand((1,)).item() < p


def _uniform(low, high):
    return low + (high - low) * _C._torch.rand((1,)).item()


def _int(low, high):
    """A whole number from ``low`` to below ``high``."""
    return int(_C._torch.randint(low, high, (1,)).item())


def _pair(size, what="size"):
    if isinstance(size, int):
        return (size, size)
    size = tuple(size)
    if len(size) == 1:
        return (size[0], size[0])
    if len(size) != 2:
        raise ValueError(f"Please provide only two dimensions (h, w) for {what}.")
    return size


class Compose:
    """Transforms in sequence."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, img):
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self):
        return "Compose(\n" + "".join(f"    {t}\n" for t in self.transforms) + ")"


class Lambda:
    """A user-defined function."""

    def __init__(self, lambd):
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img):
        return self.lambd(img)

    def __repr__(self):
        return "Lambda()"


class ToTensor:
    """An image, or an array ``[height, width, channels]``, as a tensor of floats ``[channels, height, width]`` from 0 to 1."""

    def __call__(self, pic):
        return F.to_tensor(pic)

    def __repr__(self):
        return "ToTensor()"


class PILToTensor:
    """An image as a tensor of bytes."""

    def __call__(self, pic):
        return F.pil_to_tensor(pic)

    def __repr__(self):
        return "PILToTensor()"


class ToPILImage:
    """A tensor or an array as an image."""

    def __init__(self, mode=None):
        self.mode = mode

    def __call__(self, pic):
        return F.to_pil_image(pic, self.mode)

    def __repr__(self):
        return "ToPILImage()"


class _Transform(Module):
    """A transform by named options, which its repr shows."""

    _shown = ()

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={_text(getattr(self, name))}' for name in self._shown)})"


def _text(value):
    return value.value if isinstance(value, InterpolationMode) else value


class ConvertImageDtype(_Transform):
    """Converts a tensor's dtype and rescales its values to that dtype's range."""

    _shown = ("dtype",)

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, image):
        return F.convert_image_dtype(image, self.dtype)


class Normalize(_Transform):
    """Subtracts the mean of each channel and divides by the standard deviation."""

    _shown = ("mean", "std")

    def __init__(self, mean, std, inplace=False):
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor):
        return F.normalize(tensor, self.mean, self.std, self.inplace)


class Resize(_Transform):
    """Resizes to ``(height, width)``, or the shorter side to a number."""

    _shown = ("size", "interpolation", "max_size", "antialias")

    def __init__(self, size, interpolation=InterpolationMode.BILINEAR, max_size=None, antialias=True):
        super().__init__()
        if not isinstance(size, (int, list, tuple)):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if not isinstance(size, int) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        self.size, self.interpolation, self.max_size, self.antialias = size, F._mode(interpolation), max_size, antialias

    def forward(self, img):
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(_Transform):
    """The centre of the image."""

    _shown = ("size",)

    def __init__(self, size):
        super().__init__()
        self.size = _pair(size)

    def forward(self, img):
        return F.center_crop(img, self.size)


class FiveCrop(CenterCrop):
    """The four corners and the centre, as a tuple."""

    def forward(self, img):
        return F.five_crop(img, self.size)


class TenCrop(_Transform):
    """``FiveCrop`` of the image and of its flip."""

    _shown = ("size", "vertical_flip")

    def __init__(self, size, vertical_flip=False):
        super().__init__()
        self.size, self.vertical_flip = _pair(size), vertical_flip

    def forward(self, img):
        return F.ten_crop(img, self.size, self.vertical_flip)


class Pad(_Transform):
    """Pads the image."""

    _shown = ("padding", "fill", "padding_mode")

    def __init__(self, padding, fill=0, padding_mode="constant"):
        super().__init__()
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img):
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class RandomCrop(_Transform):
    """A random crop, optionally padded first."""

    _shown = ("size", "padding")

    def __init__(self, size, padding=None, pad_if_needed=False, fill=0, padding_mode="constant"):
        super().__init__()
        self.size, self.padding, self.pad_if_needed = _pair(size), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    @staticmethod
    def get_params(img, output_size):
        """Top, left, height and width of a random crop."""
        _, h, w = F.get_dimensions(img)
        height, width = output_size
        if h < height or w < width:
            raise ValueError(f"Required crop size {(height, width)} is larger than input image size {(h, w)}")
        if w == width and h == height:
            return 0, 0, h, w
        return _int(0, h - height + 1), _int(0, w - width + 1), height, width

    def forward(self, img):
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        if self.pad_if_needed:
            _, h, w = F.get_dimensions(img)
            if w < self.size[1]:
                img = F.pad(img, [self.size[1] - w, 0], self.fill, self.padding_mode)
            if h < self.size[0]:
                img = F.pad(img, [0, self.size[0] - h], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))


class _ByChance(_Transform):
    _shown = ("p",)

    def __init__(self, p=0.5):
        super().__init__()
        self.p = p

    def forward(self, img):
        return self._apply(img) if _chance(self.p) else img


class RandomHorizontalFlip(_ByChance):
    """Horizontal flip with probability ``p``."""

    def _apply(self, img):
        return F.hflip(img)


class RandomVerticalFlip(_ByChance):
    """Vertical flip with probability ``p``."""

    def _apply(self, img):
        return F.vflip(img)


class RandomInvert(_ByChance):
    """Inverts with probability ``p``."""

    def _apply(self, img):
        return F.invert(img)


class RandomGrayscale(_ByChance):
    """Converts to grey with probability ``p``, with the same number of channels."""

    def __init__(self, p=0.1):
        super().__init__(p)

    def _apply(self, img):
        return F.rgb_to_grayscale(img, F.get_image_num_channels(img))


class RandomSolarize(_ByChance):
    """Inverts bright pixels with probability ``p``."""

    _shown = ("threshold", "p")

    def __init__(self, threshold, p=0.5):
        super().__init__(p)
        self.threshold = threshold

    def _apply(self, img):
        return F.solarize(img, self.threshold)


class RandomPosterize(_ByChance):
    """Reduces the bits with probability ``p``."""

    _shown = ("bits", "p")

    def __init__(self, bits, p=0.5):
        super().__init__(p)
        self.bits = bits

    def _apply(self, img):
        return F.posterize(img, self.bits)


class RandomResizedCrop(_Transform):
    """A random crop of random size and aspect ratio, resized."""

    _shown = ("size", "scale", "ratio", "interpolation", "antialias")
    _crop = staticmethod(F.resized_crop)

    def __init__(self, size, scale=(0.08, 1.0), ratio=(3.0 / 4.0, 4.0 / 3.0), interpolation=InterpolationMode.BILINEAR, antialias=True):
        super().__init__()
        self.size, self.scale, self.ratio = _pair(size), scale, ratio
        self.interpolation, self.antialias = F._mode(interpolation), antialias

    @staticmethod
    def get_params(img, scale, ratio):
        """Top, left, height and width of a random crop."""
        _, h, w = F.get_dimensions(img)
        for _ in range(10):
            area = h * w * _uniform(*scale)
            shape = math.exp(_uniform(math.log(ratio[0]), math.log(ratio[1])))
            width, height = int(round(math.sqrt(area * shape))), int(round(math.sqrt(area / shape)))
            if 0 < width <= w and 0 < height <= h:
                return _int(0, h - height + 1), _int(0, w - width + 1), height, width
        # The centre, in the nearest aspect ratio allowed.
        height, width = h, w
        if w / h < min(ratio):
            height = int(round(w / min(ratio)))
        elif w / h > max(ratio):
            width = int(round(h * max(ratio)))
        return (h - height) // 2, (w - width) // 2, height, width

    def forward(self, img):
        place = self.get_params(img, self.scale, self.ratio)
        return self._crop(img, *place, self.size, self.interpolation, self.antialias)


class ColorJitter(_Transform):
    """Brightness, contrast, saturation and hue changed at random, in random order."""

    _shown = ("brightness", "contrast", "saturation", "hue")

    def __init__(self, brightness=0, contrast=0, saturation=0, hue=0):
        super().__init__()
        self.brightness = self._range("brightness", brightness)
        self.contrast = self._range("contrast", contrast)
        self.saturation = self._range("saturation", saturation)
        self.hue = self._range("hue", hue, 0, (-0.5, 0.5), False)

    @staticmethod
    def _range(name, value, centre=1, bound=(0, math.inf), cut=True):
        if isinstance(value, (int, float)):
            if value < 0:
                raise ValueError(f"If {name} is a single number, it must be non negative.")
            value = (max(centre - float(value), 0.0) if cut else centre - float(value), centre + float(value))
        value = tuple(float(v) for v in value)
        if not bound[0] <= value[0] <= value[1] <= bound[1]:
            raise ValueError(f"{name} values should be between {bound}, but got {value}.")
        return None if value == (centre, centre) else value

    def forward(self, img):
        changes = [
            (self.brightness, F.adjust_brightness), (self.contrast, F.adjust_contrast), (self.saturation, F.adjust_saturation),
            (self.hue, F.adjust_hue),
        ]
        for i in _C._torch.randperm(4).tolist():
            between, change = changes[i]
            if between is not None:
                img = change(img, _uniform(*between))
        return img


def _degrees(degrees):
    if isinstance(degrees, (int, float)):
        if degrees < 0:
            raise ValueError("If degrees is a single number, it must be positive.")
        return [-float(degrees), float(degrees)]
    if len(degrees) != 2:
        raise ValueError("degrees should be a sequence of length 2.")
    return [float(d) for d in degrees]


class RandomRotation(_Transform):
    """Rotates by a random angle."""

    _shown = ("degrees", "interpolation", "expand", "fill")

    def __init__(self, degrees, interpolation=InterpolationMode.NEAREST, expand=False, center=None, fill=0):
        super().__init__()
        self.degrees, self.interpolation = _degrees(degrees), F._mode(interpolation)
        self.expand, self.center, self.fill = expand, center, fill

    def forward(self, img):
        return F.rotate(img, _uniform(*self.degrees), self.interpolation, self.expand, self.center, self.fill)


class RandomAffine(_Transform):
    """Rotates, translates, scales and shears at random."""

    _shown = ("degrees", "translate", "scale", "shear")

    def __init__(self, degrees, translate=None, scale=None, shear=None, interpolation=InterpolationMode.NEAREST, fill=0, center=None):
        super().__init__()
        self.degrees, self.translate, self.scale = _degrees(degrees), translate, scale
        self.shear = None if shear is None else _degrees(shear) if isinstance(shear, (int, float)) else [float(s) for s in shear]
        self.interpolation, self.fill, self.center = F._mode(interpolation), fill, center

    def forward(self, img):
        _, h, w = F.get_dimensions(img)
        moved = (0, 0)
        if self.translate is not None:
            x, y = self.translate[0] * w, self.translate[1] * h
            moved = (int(round(_uniform(-x, x))), int(round(_uniform(-y, y))))
        scale = 1.0 if self.scale is None else _uniform(*self.scale)
        shear = [0.0, 0.0]
        if self.shear is not None:
            shear[0] = _uniform(*self.shear[:2])
            if len(self.shear) == 4:
                shear[1] = _uniform(*self.shear[2:])
        return F.affine(img, _uniform(*self.degrees), moved, scale, shear, self.interpolation, self.fill, self.center)


class Grayscale(_Transform):
    """Grey, with one or three equal channels."""

    _shown = ("num_output_channels",)

    def __init__(self, num_output_channels=1):
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img):
        return F.rgb_to_grayscale(img, self.num_output_channels)


class GaussianBlur(_Transform):
    """Blurs by a random amount."""

    _shown = ("kernel_size", "sigma")

    def __init__(self, kernel_size, sigma=(0.1, 2.0)):
        super().__init__()
        self.kernel_size = _pair(kernel_size, "kernel_size")
        self.sigma = (sigma, sigma) if isinstance(sigma, (int, float)) else tuple(sigma)

    def forward(self, img):
        spread = _uniform(*self.sigma)
        return F.gaussian_blur(img, self.kernel_size, [spread, spread])


class RandomErasing(_Transform):
    """Fills a random rectangle of a tensor with probability ``p``: with a value, or with noise for ``value="random"``."""

    _shown = ("p", "scale", "ratio", "value", "inplace")

    def __init__(self, p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0, inplace=False):
        super().__init__()
        if not isinstance(value, (int, float, str, tuple, list)):
            raise TypeError("Argument value should be either a number or str or a sequence")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        if not 0 <= scale[0] <= scale[1] <= 1:
            raise ValueError("Scale should be between 0 and 1")
        if not 0 <= p <= 1:
            raise ValueError("Random erasing probability should be between 0 and 1")
        self.p, self.scale, self.ratio, self.value, self.inplace = p, scale, ratio, value, inplace

    def forward(self, img):
        if not _chance(self.p):
            return img
        channels, h, w = F.get_dimensions(img)
        for _ in range(10):
            area = h * w * _uniform(*self.scale)
            shape = math.exp(_uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            height, width = int(round(math.sqrt(area * shape))), int(round(math.sqrt(area / shape)))
            if height < h and width < w and height > 0 and width > 0:
                if self.value == "random":
                    value = _C._torch.randn((channels, height, width))
                else:
                    value = _C.tensor(self.value, dtype=_C.float32).reshape((-1, 1, 1))
                top, left = _int(0, h - height + 1), _int(0, w - width + 1)
                return F.erase(img, top, left, height, width, value.to(img.dtype), self.inplace)
        return img


class RandomApply(Module):
    """Transforms applied with probability ``p``."""

    def __init__(self, transforms, p=0.5):
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, img):
        if not _chance(self.p):
            return img
        for transform in self.transforms:
            img = transform(img)
        return img


class RandomOrder(Compose):
    """Transforms in random order."""

    def __call__(self, img):
        for i in random.sample(range(len(self.transforms)), len(self.transforms)):
            img = self.transforms[i](img)
        return img


class RandomChoice(Compose):
    """A random one of the transforms."""

    def __init__(self, transforms, p=None):
        super().__init__(transforms)
        self.p = p

    def __call__(self, img):
        return random.choices(self.transforms, weights=self.p)[0](img)
