"""Functions of images that look at neighbours, at all pixels, or move pixels freely."""

from ... import _C
from .._image import like, pixels

_torch = _C._torch


def _common():
    """The module whose names these functions have, which imports this one."""
    from . import functional

    return functional


def adjust_sharpness(img, sharpness_factor):
    """The image sharper (above 1) or smoother; at 0 it is the mean of neighbours."""
    from ...nn.functional import conv2d

    if sharpness_factor < 0:
        raise ValueError(f"sharpness_factor ({sharpness_factor}) is not non-negative.")
    common, p = _common(), pixels(img)
    if min(p.shape[-2:]) <= 2:
        return img
    bound = 1.0 if p.is_floating_point() else 255.0

    def sharpened(batch):
        kernel = _C.tensor([[1.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 1.0]])
        smooth = common._computed(batch, lambda f: conv2d(f, (kernel / 13.0).to(f.dtype).expand(f.shape[1], 1, 3, 3).contiguous(), groups=f.shape[1]))
        found = batch.clone()
        # Pixels at the edges have too few neighbours, and stay.
        found[..., 1:-1, 1:-1] = smooth
        mixed = batch * sharpness_factor + found * (1.0 - sharpness_factor)
        return mixed.clamp(0, bound).to(batch.dtype)

    return like(img, common._batched(p, sharpened))


def autocontrast(img):
    """Stretches each channel, so that its darkest pixel is black and its lightest white."""
    p = pixels(img)
    bound = 1.0 if p.is_floating_point() else 255.0
    values = p if p.is_floating_point() else p.to(_C.float32)
    low, high = values.amin((-2, -1), True), values.amax((-2, -1), True)
    flat = high == low
    # As torchvision rounds it: bytes are cut off below.
    scale = _torch.where(flat, _torch.full_like(high, bound), high - low).reciprocal() * bound
    low = _torch.where(flat, _torch.zeros_like(low), low)
    return like(img, ((values - low) * scale).clamp(0, bound).to(p.dtype))


def equalize(img):
    """Spreads the bytes of each channel, so that all are about equally frequent."""
    p = pixels(img)
    if p.dtype is not _C.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {p.dtype}")
    planes = p.reshape((-1, p.shape[-2] * p.shape[-1])).to(_C.int64)
    found = []
    for plane in planes.unbind(0):
        counts = _torch.bincount(plane, minlength=256)
        filled = counts[counts != 0]
        step = int(filled[:-1].sum().item()) // 255
        if step == 0:
            found.append(plane)
            continue
        # A value becomes the share of pixels that are darker.
        table = (counts.cumsum(0) + step // 2).div(step, rounding_mode="floor")
        table = _torch.cat([table.new_zeros(1), table[:-1]]).clamp(0, 255)
        found.append(table[plane])
    return like(img, _torch.stack(found).reshape(p.shape).to(_C.uint8))


def _projection(startpoints, endpoints):
    """Eight numbers of the projection that takes the end points to the start points."""
    from ...linalg import solve

    rows = []
    for (x, y), (u, v) in zip(endpoints, startpoints):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
    right = [float(number) for point in startpoints for number in point]
    return solve(_C.tensor(rows, dtype=_C.float64), _C.tensor(right, dtype=_C.float64)).tolist()


def perspective(img, startpoints, endpoints, interpolation=None, fill=None):
    """The image seen from another place: four points ``[x, y]`` of it move to ``endpoints``."""
    common, p = _common(), pixels(img)
    mode = common._checked(common.InterpolationMode.BILINEAR if interpolation is None else interpolation)
    if len(startpoints) != 4 or len(endpoints) != 4:
        raise ValueError("perspective: expects four startpoints and four endpoints")
    a, b, c, d, e, f, g, h = _projection(startpoints, endpoints)
    height, width = p.shape[-2:]
    x = _torch.arange(width, dtype=_C.float32) + 0.5
    y = (_torch.arange(height, dtype=_C.float32) + 0.5).unsqueeze(1)
    depth = x * g + y * h + 1.0
    u = (x * a + y * b + c) * (2.0 / width) / depth - 1
    v = (x * d + y * e + f) * (2.0 / height) / depth - 1
    return like(img, common._at(p, _torch.stack([u, v], -1).unsqueeze(0), mode, fill))


def elastic_transform(img, displacement, interpolation=None, fill=None):
    """The image with each pixel moved: ``displacement`` is ``[1, height, width, 2]``, in halves of the image's width and height."""
    common, p = _common(), pixels(img)
    mode = common._checked(common.InterpolationMode.BILINEAR if interpolation is None else interpolation)
    height, width = p.shape[-2:]
    if not isinstance(displacement, _C.Tensor):
        raise TypeError("Argument displacement should be a Tensor")
    if tuple(displacement.shape) != (1, height, width, 2):
        raise ValueError(f"Argument displacement shape should be {(1, height, width, 2)}, but given {tuple(displacement.shape)}")
    x = _torch.linspace((1 - width) / width, (width - 1) / width, width).expand(height, width)
    y = _torch.linspace((1 - height) / height, (height - 1) / height, height).unsqueeze(1).expand(height, width)
    return like(img, common._at(p, _torch.stack([x, y], -1).unsqueeze(0) + displacement, mode, fill))
