"""Reference values for the image transforms and the sizes of splits of crates/data.

    python tests/goldens/data_transforms.py       # writes data_transforms.json beside this file

resize comes from torch.nn.functional.interpolate, which torchvision's resize calls for tensors. The colour formulas are written out here from
their definitions: blends with black, with the mean grey and with the grey image; hue by way of HSV. random_split's lengths come from torch's own.
"""

import colorsys
import json
import math
import pathlib
import warnings

import torch
import torch.nn.functional as F
from torch.utils.data import DistributedSampler, default_collate, random_split

torch.set_num_threads(1)
warnings.simplefilter("ignore")  # about parts without samples
generator = torch.Generator().manual_seed(0)


def bytes_image(height, width, channels=3):
    return torch.randint(0, 256, (channels, height, width), generator=generator, dtype=torch.uint8)


def as_bytes(x):
    """Floats back to bytes by cutting off, as blends do."""
    return x.clamp(0, 255).to(torch.uint8)


def grey(image):
    r, g, b = image.to(torch.float32).unbind(0)
    return (0.2989 * r + 0.587 * g + 0.114 * b).to(image.dtype).unsqueeze(0)


def blend(image, other, ratio):
    mixed = image.to(torch.float32) * ratio + other.to(torch.float32) * (1.0 - ratio)
    return as_bytes(mixed) if image.dtype == torch.uint8 else mixed.clamp(0, 1)


def turn_hue(image, shift):
    """Pixel by pixel with Python's own colour module, in double precision."""
    out = torch.empty_like(image, dtype=torch.float64)
    for y in range(image.shape[1]):
        for x in range(image.shape[2]):
            h, s, v = colorsys.rgb_to_hsv(*image[:, y, x].tolist())
            out[:, y, x] = torch.tensor(colorsys.hsv_to_rgb((h + shift) % 1.0, s, v), dtype=torch.float64)
    return out.to(torch.float32)


def resized(image, size, antialias):
    x = image.unsqueeze(0).to(torch.float32)
    y = F.interpolate(x, size=size, mode="bilinear", align_corners=False, antialias=antialias)[0]
    return y.round().clamp(0, 255).to(torch.uint8) if image.dtype == torch.uint8 else y


def listed(t):
    data = [float(f"{v:.9g}") if isinstance(v, float) else v for v in t.flatten().tolist()]
    return {"shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch."), "data": data}


cases = []


def case(op, image, out, **args):
    cases.append({"op": op, "image": listed(image), "args": args, "out": listed(out)})


small, float_small = bytes_image(4, 5), torch.rand((3, 4, 5), generator=generator)
for image in (small, float_small):
    for factor in (0.0, 0.4, 1.0, 1.7):
        mean = grey(image).to(torch.float32).mean()
        case("brightness", image, blend(image, torch.zeros_like(image), factor), factor=factor)
        case("contrast", image, blend(image, mean, factor), factor=factor)
        case("saturation", image, blend(image, grey(image), factor), factor=factor)
    case("grayscale", image, grey(image))
for shift in (-0.5, -0.2, 0.0, 0.1, 0.5):
    case("hue", float_small, turn_hue(float_small, shift), shift=shift)
greyish = torch.tensor([[[0.5, 0.0, 1.0, 0.2]], [[0.5, 0.0, 1.0, 0.2]], [[0.5, 0.0, 1.0, 0.9]]])
case("hue", greyish, turn_hue(greyish, 0.3), shift=0.3)

mean, std = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]
column = lambda v: torch.tensor(v).view(3, 1, 1)
case("normalize", float_small, (float_small - column(mean)) / column(std), mean=mean, std=std)
case("to_tensor", small, small.to(torch.float32) / 255)

picture, float_picture = bytes_image(13, 10), torch.rand((2, 9, 14), generator=generator)
for image in (picture, float_picture):
    for size in ((5, 4), (20, 23), (13, 3), (1, 1), (6, 30)):
        for antialias in (True, False):
            case("resize", image, resized(image, size, antialias), size=size, antialias=antialias)


def centre(image, size):
    """torchvision's centre crop: zeros around small images, halves rounded to even."""
    _, h, w = image.shape
    missing_h, missing_w = max(size[0] - h, 0), max(size[1] - w, 0)
    image = F.pad(image, [missing_w // 2, (missing_w + 1) // 2, missing_h // 2, (missing_h + 1) // 2])
    top, left = int(round((image.shape[1] - size[0]) / 2.0)), int(round((image.shape[2] - size[1]) / 2.0))
    return image[:, top : top + size[0], left : left + size[1]]


for size in ((3, 3), (10, 8), (4, 7), (2, 6), (15, 12)):
    case("center_crop", picture, centre(picture, size), size=size)

splits = []
for n in (0, 1, 10, 11, 100, 101, 1000):
    for fractions in ([0.8, 0.2], [0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3], [0.7, 0.2, 0.1], [1.0, 0.0]):
        if sum(fractions) <= 1.0 and math.isclose(sum(fractions), 1.0):
            parts = random_split(list(range(n)), fractions)
            splits.append({"total": n, "fractions": fractions, "lengths": [len(p) for p in parts]})

shares = []
for n in (1, 5, 7, 12):
    for replicas in (1, 2, 3, 8):
        for drop_last in (False, True):
            ranks = [
                list(DistributedSampler(range(n), replicas, rank, shuffle=False, drop_last=drop_last))
                for rank in range(replicas)
            ]
            shares.append({"len": n, "replicas": replicas, "drop_last": drop_last, "ranks": ranks})

collated = {
    "ints": str(default_collate([1, 2]).dtype).removeprefix("torch."),
    "floats": str(default_collate([1.0, 2.0]).dtype).removeprefix("torch."),
    "bools": str(default_collate([True, False]).dtype).removeprefix("torch."),
}

path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps({"cases": cases, "splits": splits, "shares": shares, "collated": collated}) + "\n")
print(f"{len(cases)} transforms, {len(splits)} splits, {len(shares)} shares: {path.stat().st_size} bytes")
