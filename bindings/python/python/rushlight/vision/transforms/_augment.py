"""Transforms that are drawn: sharpness, contrast, warps, and the policies of AutoAugment, RandAugment, TrivialAugment and AugMix."""

import enum
import math

from ... import _C
from .._image import from_pixels, is_image, pixels
from . import functional as F
from .functional import InterpolationMode
from .transforms import _ByChance, _chance, _int, _Transform

__all__ = [
    "AugMix", "AutoAugment", "AutoAugmentPolicy", "ElasticTransform", "LinearTransformation", "RandAugment", "RandomAdjustSharpness", "RandomAutocontrast",
    "RandomEqualize", "RandomPerspective", "TrivialAugmentWide",
]

_torch = _C._torch


class RandomAdjustSharpness(_ByChance):
    """Changes the sharpness with probability ``p``."""

    _shown = ("sharpness_factor", "p")

    def __init__(self, sharpness_factor, p=0.5):
        super().__init__(p)
        self.sharpness_factor = sharpness_factor

    def _apply(self, img):
        return F.adjust_sharpness(img, self.sharpness_factor)


class RandomAutocontrast(_ByChance):
    """Stretches the contrast with probability ``p``."""

    def _apply(self, img):
        return F.autocontrast(img)


class RandomEqualize(_ByChance):
    """Equalizes the histogram with probability ``p``."""

    def _apply(self, img):
        return F.equalize(img)


class RandomPerspective(_Transform):
    """Moves the four corners inwards at random, with probability ``p``."""

    _shown = ("p",)

    def __init__(self, distortion_scale=0.5, p=0.5, interpolation=InterpolationMode.BILINEAR, fill=0):
        super().__init__()
        self.distortion_scale, self.p, self.interpolation, self.fill = distortion_scale, p, F._mode(interpolation), fill

    @staticmethod
    def get_params(width, height, distortion_scale):
        """Corners of the image, and where they go."""
        x, y = int(distortion_scale * (width // 2)), int(distortion_scale * (height // 2))
        ends = [
            [_int(0, x + 1), _int(0, y + 1)], [_int(width - x - 1, width), _int(0, y + 1)],
            [_int(width - x - 1, width), _int(height - y - 1, height)], [_int(0, x + 1), _int(height - y - 1, height)],
        ]
        return [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], ends

    def forward(self, img):
        if not _chance(self.p):
            return img
        _, height, width = F.get_dimensions(img)
        return F.perspective(img, *self.get_params(width, height, self.distortion_scale), self.interpolation, self.fill)


class ElasticTransform(_Transform):
    """Moves pixels by random distances, smoothed over ``sigma`` pixels and scaled by ``alpha``."""

    _shown = ("alpha", "sigma", "interpolation", "fill")

    def __init__(self, alpha=50.0, sigma=5.0, interpolation=InterpolationMode.BILINEAR, fill=0):
        super().__init__()
        self.alpha, self.sigma = ([float(n) for n in (v if isinstance(v, (list, tuple)) else [v])] for v in (alpha, sigma))
        self.alpha, self.sigma = (v * 2 if len(v) == 1 else v for v in (self.alpha, self.sigma))
        self.interpolation, self.fill = F._mode(interpolation), fill

    @staticmethod
    def get_params(alpha, sigma, size):
        """Distances of each pixel."""
        parts = []
        for scale, spread, length in zip(alpha, sigma, size):
            moved = _torch.rand([1, 1, *size]) * 2 - 1
            if spread > 0.0:
                moved = F.gaussian_blur(moved, int(8 * spread + 1) | 1, list(sigma))
            parts.append(moved * scale / length)
        return _torch.cat(parts, 1).permute([0, 2, 3, 1])

    def forward(self, img):
        return F.elastic_transform(img, self.get_params(self.alpha, self.sigma, F.get_dimensions(img)[1:]), self.interpolation, self.fill)


class LinearTransformation(_Transform):
    """Subtracts a mean from an image's numbers and multiplies them by a square matrix: whitening."""

    _shown = ("transformation_matrix", "mean_vector")

    def __init__(self, transformation_matrix, mean_vector):
        super().__init__()
        rows, columns = transformation_matrix.shape
        if rows != columns:
            raise ValueError(f"transformation_matrix should be square. Got {rows} x {columns} rectangular matrix.")
        if len(mean_vector) != rows:
            raise ValueError(f"mean_vector should have the same length {len(mean_vector)} as any one of the dimensions of the transformation_matrix [{rows} x {columns}]")
        self.transformation_matrix, self.mean_vector = transformation_matrix, mean_vector

    def forward(self, tensor):
        numbers = math.prod(tensor.shape[-3:])
        if numbers != self.transformation_matrix.shape[0]:
            raise ValueError(f"Input tensor and transformation matrix have incompatible shape: {numbers} numbers and {self.transformation_matrix.shape[0]} rows")
        return ((tensor.reshape((-1, numbers)) - self.mean_vector) @ self.transformation_matrix).reshape(tensor.shape)


# Policies.


def _changed(img, name, size, interpolation, fill):
    """An image after one operation of a policy."""
    if name in ("ShearX", "ShearY"):
        angle = math.degrees(math.atan(size))
        shear = [angle, 0.0] if name == "ShearX" else [0.0, angle]
        return F.affine(img, 0.0, [0, 0], 1.0, shear, interpolation, fill, [0, 0])
    if name in ("TranslateX", "TranslateY"):
        moved = [int(size), 0] if name == "TranslateX" else [0, int(size)]
        return F.affine(img, 0.0, moved, 1.0, [0.0, 0.0], interpolation, fill)
    if name == "Rotate":
        return F.rotate(img, size, interpolation, fill=fill)
    factors = {"Brightness": F.adjust_brightness, "Color": F.adjust_saturation, "Contrast": F.adjust_contrast, "Sharpness": F.adjust_sharpness}
    if name in factors:
        return factors[name](img, 1.0 + size)
    if name in ("Posterize", "Solarize"):
        return F.posterize(img, int(size)) if name == "Posterize" else F.solarize(img, size)
    return {"AutoContrast": F.autocontrast, "Equalize": F.equalize, "Invert": F.invert, "Identity": lambda same: same}[name](img)


def _steps(low, high, bins):
    return _torch.linspace(low, high, bins).tolist()


def _bits(most, fewer, bins):
    return [most - round(step) for step in (_torch.arange(bins) / ((bins - 1) / fewer)).tolist()]


#: Operations whose sizes have signs.
_SIGNED = frozenset("ShearX ShearY TranslateX TranslateY Rotate Brightness Color Contrast Sharpness".split())


def _space(bins, shear, move, turn, factor, bits, names):
    """Sizes by operation, None for those without; ``move`` is for columns and rows."""
    sizes = {
        "ShearX": (0.0, shear), "ShearY": (0.0, shear), "TranslateX": (0.0, move[0]), "TranslateY": (0.0, move[1]), "Rotate": (0.0, turn),
        **dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), (0.0, factor)), "Solarize": (255.0, 0.0),
    }
    return {name: _bits(*bits, bins) if name == "Posterize" else _steps(*sizes[name], bins) if name in sizes else None for name in names.split()}


_GEOMETRY = "ShearX ShearY TranslateX TranslateY Rotate"
_COLOURS = "Brightness Color Contrast Sharpness"


class _Policy(_Transform):
    def _fill(self, img):
        """The fill as one number for each channel."""
        fill, channels = self.fill, F.get_dimensions(img)[0]
        if is_image(img) and not isinstance(img, _C.Tensor) or fill is None:
            return fill
        return [float(fill)] * channels if isinstance(fill, (int, float)) else [float(f) for f in fill]

    def _drawn(self, img, space, chosen):
        """An operation of a space at random, with the size that ``chosen`` picks from its list."""
        name = list(space)[_int(0, len(space))]
        size = 0.0 if space[name] is None else chosen(space[name])
        if name in _SIGNED and _int(0, 2):
            size = -size
        return _changed(img, name, size, self.interpolation, self._fill(img))


class RandAugment(_Policy):
    """``num_ops`` operations at random, all of one size."""

    _shown = ("num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill")

    def __init__(self, num_ops=2, magnitude=9, num_magnitude_bins=31, interpolation=InterpolationMode.NEAREST, fill=None):
        super().__init__()
        self.num_ops, self.magnitude, self.num_magnitude_bins, self.interpolation, self.fill = num_ops, magnitude, num_magnitude_bins, interpolation, fill

    def _augmentation_space(self, bins, height, width):
        move = (150.0 / 331.0 * width, 150.0 / 331.0 * height)
        return _space(bins, 0.3, move, 30.0, 0.9, (8, 4), f"Identity {_GEOMETRY} {_COLOURS} Posterize Solarize AutoContrast Equalize")

    def forward(self, img):
        _, height, width = F.get_dimensions(img)
        space = self._augmentation_space(self.num_magnitude_bins, height, width)
        for _ in range(self.num_ops):
            img = self._drawn(img, space, lambda sizes: sizes[self.magnitude])
        return img


class TrivialAugmentWide(_Policy):
    """One operation at random, of a size at random."""

    _shown = ("num_magnitude_bins", "interpolation", "fill")

    def __init__(self, num_magnitude_bins=31, interpolation=InterpolationMode.NEAREST, fill=None):
        super().__init__()
        self.num_magnitude_bins, self.interpolation, self.fill = num_magnitude_bins, interpolation, fill

    def _augmentation_space(self, bins):
        return _space(bins, 0.99, (32.0, 32.0), 135.0, 0.99, (8, 6), f"Identity {_GEOMETRY} {_COLOURS} Posterize Solarize AutoContrast Equalize")

    def forward(self, img):
        return self._drawn(img, self._augmentation_space(self.num_magnitude_bins), lambda sizes: sizes[_int(0, len(sizes))])


class AugMix(_Policy):
    """The image mixed with ``mixture_width`` chains of operations, by weights at random."""

    _shown = ("severity", "mixture_width", "chain_depth", "alpha", "all_ops", "interpolation", "fill")

    def __init__(self, severity=3, mixture_width=3, chain_depth=-1, alpha=1.0, all_ops=True, interpolation=InterpolationMode.BILINEAR, fill=None):
        super().__init__()
        if not 1 <= severity <= 10:
            raise ValueError(f"The severity must be between [1, 10]. Got {severity} instead.")
        self.severity, self.mixture_width, self.chain_depth, self.alpha = severity, mixture_width, chain_depth, alpha
        self.all_ops, self.interpolation, self.fill = all_ops, interpolation, fill

    def _augmentation_space(self, bins, height, width):
        names = f"{_GEOMETRY} Posterize Solarize AutoContrast Equalize" + f" {_COLOURS}" * bool(self.all_ops)
        return _space(bins, 0.3, (width / 3.0, height / 3.0), 30.0, 0.9, (4, 4), names)

    def forward(self, img):
        from ...distributions import Dirichlet

        tensor = pixels(img)
        _, height, width = F.get_dimensions(img)
        space = self._augmentation_space(10, height, width)
        batch = tensor.reshape((-1, *tensor.shape[-3:]))
        count = batch.shape[0]

        def weights(number):
            return Dirichlet(_torch.full((count, number), float(self.alpha))).sample()

        both = weights(2)
        chains = weights(self.mixture_width) * both[:, 1:]
        mixed = both[:, 0].reshape((count, 1, 1, 1)) * batch
        for at in range(self.mixture_width):
            found = batch
            for _ in range(self.chain_depth if self.chain_depth > 0 else _int(1, 4)):
                found = self._drawn(found, space, lambda sizes: sizes[_int(0, self.severity)])
            mixed = mixed + chains[:, at].reshape((count, 1, 1, 1)) * found
        mixed = mixed.reshape(tensor.shape).to(tensor.dtype)
        return mixed if isinstance(img, _C.Tensor) else from_pixels(mixed)


class AutoAugmentPolicy(enum.Enum):
    """The data sets that policies were found for."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


class AutoAugment(_Policy):
    """A pair of operations that was found to help, each with its own chance and size."""

    _shown = ("policy", "fill")

    def __init__(self, policy=AutoAugmentPolicy.IMAGENET, interpolation=InterpolationMode.NEAREST, fill=None):
        super().__init__()
        self.policy, self.interpolation, self.fill = policy, interpolation, fill
        self.policies = self._get_policies(policy)

    @staticmethod
    def _get_policies(policy):
        """Pairs of ``(operation, chance, number of its size)``."""
        from ._policies import POLICIES

        def one(text):
            name, chance, size = text.split()
            return name, int(chance) / 10, None if size == "-" else int(size)

        return [tuple(one(part) for part in pair.split(" + ")) for pair in POLICIES[AutoAugmentPolicy(policy).value].split(", ")]

    @staticmethod
    def get_params(transform_num):
        """Which pair, two numbers for chances, two signs."""
        return _int(0, transform_num), _torch.rand((2,)), _torch.randint(2, (2,))

    def _augmentation_space(self, bins, height, width):
        move = (150.0 / 331.0 * width, 150.0 / 331.0 * height)
        return _space(bins, 0.3, move, 30.0, 0.9, (8, 4), f"{_GEOMETRY} {_COLOURS} Posterize Solarize AutoContrast Equalize Invert")

    def forward(self, img):
        _, height, width = F.get_dimensions(img)
        space, (pair, chances, signs) = self._augmentation_space(10, height, width), self.get_params(len(self.policies))
        for (name, chance, at), drawn, sign in zip(self.policies[pair], chances.tolist(), signs.tolist()):
            if drawn <= chance:
                size = 0.0 if at is None else space[name][at]
                img = _changed(img, name, -size if name in _SIGNED and not sign else size, self.interpolation, self._fill(img))
        return img
