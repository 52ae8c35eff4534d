"""Grids of images, files of them, and what is drawn on them: ``torchvision.utils``."""

import math

from .. import _C
from ..autograd.grad_mode import no_grad
from ._draw import draw_bounding_boxes, draw_keypoints, draw_segmentation_masks, flow_to_image
from .io import write_jpeg, write_png

__all__ = ["draw_bounding_boxes", "draw_keypoints", "draw_segmentation_masks", "flow_to_image", "make_grid", "save_image", "write_png"]

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
    """Writes a grid of images with values from 0 to 1 to a PNG or JPEG file; other formats need Pillow."""
    grid = make_grid(tensor, **kwargs).mul(255).add(0.5).clamp(0, 255).to(_C.uint8)
    kind = (format or ("png" if hasattr(fp, "write") else str(fp).rsplit(".", 1)[-1])).lower()
    if kind == "png":
        write_png(grid, fp)
    elif kind in ("jpg", "jpeg"):
        write_jpeg(grid, fp)
    else:
        from ._image import from_pixels, pil

        if pil() is None:
            raise NotImplementedError(f"save_image: format {kind} needs Pillow; PNG and JPEG do not")
        from_pixels(grid).save(fp, format=format)
