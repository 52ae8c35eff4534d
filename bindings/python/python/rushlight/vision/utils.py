"""Grids of images, and PNG files: ``torchvision.utils``."""

import math
import struct
import zlib

from .. import _C
from ..autograd.grad_mode import no_grad

__all__ = ["make_grid", "save_image", "write_png"]

Tensor = _C.Tensor


@no_grad()
def make_grid(tensor, nrow=8, padding=2, normalize=False, value_range=None, scale_each=False, pad_value=0.0):
    """Images ``[count, channels, height, width]`` (or a list of them) in a grid."""
    if isinstance(tensor, (list, tuple)):
        tensor = _C._torch.stack(list(tensor), 0)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"tensor or list of tensors expected, got {type(tensor)}")
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 3:
        if tensor.size(0) == 1:
            tensor = tensor.expand(3, -1, -1)
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 4 and tensor.size(1) == 1:
        tensor = tensor.expand(-1, 3, -1, -1)
    if normalize:
        tensor = _normalized(tensor.clone(), value_range, scale_each)
    elif value_range is not None and not isinstance(value_range, tuple):
        raise TypeError("value_range has to be a tuple (min, max) if specified. min and max are numbers")
    if tensor.size(0) == 1:
        return tensor.squeeze(0)
    count, channels = tensor.size(0), tensor.size(1)
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    height, width = tensor.size(2) + padding, tensor.size(3) + padding
    grid = _C._torch.full((channels, height * rows + padding, width * columns + padding), pad_value, dtype=tensor.dtype)
    for k in range(count):
        top, left = (k // columns) * height + padding, (k % columns) * width + padding
        grid[:, top : top + tensor.size(2), left : left + tensor.size(3)] = tensor[k]
    return grid


def _normalized(images, value_range, scale_each):
    def scaled(t):
        low, high = value_range if value_range is not None else (t.min().item(), t.max().item())
        return (t.clamp(low, high) - low) / max(high - low, 1e-5)

    return _C._torch.stack([scaled(t) for t in images], 0) if scale_each else scaled(images)


@no_grad()
def save_image(tensor, fp, format=None, **kwargs):
    """Writes a grid of images with values from 0 to 1 to a PNG file."""
    if format not in (None, "png", "PNG"):
        raise NotImplementedError(f"save_image: format {format} is not supported; PNG is")
    grid = make_grid(tensor, **kwargs)
    write_png(grid.mul(255).add(0.5).clamp(0, 255).to(_C.uint8), fp)


def write_png(input, filename, compression_level=6):
    """Writes bytes ``[channels, height, width]`` with 1 (grey), 3 (colour) or 4 channels to a PNG file, by name or file object."""
    if not isinstance(input, Tensor) or input.dtype != _C.uint8 or input.dim() != 3:
        raise ValueError("write_png: expects a uint8 tensor [channels, height, width]")
    channels, height, width = input.shape
    kinds = {1: 0, 2: 4, 3: 2, 4: 6}
    if channels not in kinds or not height or not width:
        raise ValueError(f"write_png: an image of shape {tuple(input.shape)} cannot be written")
    rows = input.permute((1, 2, 0)).reshape((height, width * channels))
    # Each row begins with its filter type: none.
    rows = _C._torch.cat([_C._torch.zeros((height, 1), dtype=_C.uint8), rows], 1)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kinds[channels], 0, 0, 0))
    data += chunk(b"IDAT", zlib.compress(_C._to_bytes(rows.contiguous()), compression_level)) + chunk(b"IEND", b"")
    if hasattr(filename, "write"):
        filename.write(data)
    else:
        with open(filename, "wb") as file:
            file.write(data)
