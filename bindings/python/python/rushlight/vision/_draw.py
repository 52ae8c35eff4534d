"""Boxes, masks, key points and flows drawn on images."""

import math

from .. import _C
from ..autograd.grad_mode import no_grad

_torch = _C._torch
Tensor = _C.Tensor


def _pillow(name):
    try:
        from PIL import Image, ImageColor, ImageDraw, ImageFont
    except ImportError:
        raise ImportError(f"{name} draws with Pillow, which is not installed: pip install pillow") from None
    return Image, ImageColor, ImageDraw, ImageFont


def _colours(colors, count):
    """One colour of bytes for each object. Without any, colours are far apart."""
    if colors is None:
        steps = (2**25 - 1, 2**15 - 1, 2**21 - 1)
        return [tuple(at * step % 255 for step in steps) for at in range(count)]
    if isinstance(colors, list):
        if len(colors) < count:
            raise ValueError(f"Number of colors must be equal or larger than the number of objects, but got {len(colors)} < {count}.")
        found = colors[:count]
    elif isinstance(colors, (str, tuple)):
        if isinstance(colors, tuple) and len(colors) != 3:
            raise ValueError("If passed as tuple, colors should be an RGB triplet")
        found = [colors] * count
    else:
        raise ValueError("colors must be a tuple or a string, or a list thereof")
    if any(isinstance(one, str) for one in found):
        colour = _pillow("a colour by name")[1]
        found = [colour.getrgb(one) if isinstance(one, str) else one for one in found]
    return found


def _checked(image, name):
    if not isinstance(image, Tensor):
        raise TypeError(f"The image must be a tensor, got {type(image)}")
    if not (image.dtype == _C.uint8 or image.is_floating_point()):
        raise ValueError(f"The image dtype must be uint8 or float, got {image.dtype}")
    if image.dim() != 3:
        raise ValueError("Pass individual images, not batches")
    if image.size(0) not in (1, 3):
        raise ValueError("Only grayscale and RGB images are supported")
    return image.expand(3, -1, -1) if image.size(0) == 1 else image


def _to_pil(image, pil):
    pixels = image if image.dtype == _C.uint8 else image.mul(255).to(_C.uint8)
    return pil.frombytes("RGB", (image.shape[2], image.shape[1]), _C._to_bytes(pixels.permute(1, 2, 0).contiguous()))


def _from_pil(drawn, like):
    pixels = _C.frombuffer(bytearray(drawn.tobytes()), dtype=_C.uint8).reshape((drawn.height, drawn.width, 3)).permute((2, 0, 1)).contiguous()
    return pixels if like.dtype == _C.uint8 else pixels.to(like.dtype) / 255


@no_grad()
def draw_bounding_boxes(
    image, boxes, labels=None, colors=None, fill=False, width=1, font=None, font_size=None, label_colors=None, label_background_colors=None, fill_labels=False,
):
    """An image with boxes ``[n, 4]`` (corners) drawn on it, with labels if given."""
    image = _checked(image, "draw_bounding_boxes")
    if boxes.dim() != 2 or boxes.size(-1) != 4:
        raise NotImplementedError(f"draw_bounding_boxes: boxes [n, 4] given by corners are supported, got {tuple(boxes.shape)}")
    if (boxes[:, 2:] < boxes[:, :2]).any():
        raise ValueError("Boxes need to be in (xmin, ymin, xmax, ymax) format. Use torchvision.ops.box_convert to convert them")
    if not len(boxes):
        return image
    labels = [None] * len(boxes) if labels is None else labels
    if len(labels) != len(boxes):
        raise ValueError(f"Number of boxes ({len(boxes)}) and labels ({len(labels)}) mismatch. Please specify labels for each box.")
    pil, _, draws, fonts = _pillow("draw_bounding_boxes")
    edges = _colours(colors, len(boxes))
    texts = edges if label_colors is None else _colours(label_colors, len(boxes))
    grounds = edges if label_background_colors is None else _colours(label_background_colors, len(boxes))
    drawn = _to_pil(image, pil)
    draw = draws.Draw(drawn, "RGBA") if fill else draws.Draw(drawn)
    letters = fonts.load_default() if font is None else fonts.truetype(font=font, size=font_size or 10)
    for box, edge, label, text, ground in zip(boxes.to(_C.int64).tolist(), edges, labels, texts, grounds):
        draw.rectangle(box, width=width, outline=edge, **({"fill": (*edge, 100)} if fill else {}))
        if label is not None:
            margin = width + 1
            place = (box[0] + margin, box[1] + margin)
            if fill_labels or label_background_colors is not None:
                left, top, right, bottom = draw.textbbox(place, label, font=letters)
                draw.rectangle([left - margin, top - margin, right + margin, bottom + margin], fill=ground)
            draw.text(place, label, fill=text, font=letters)
    return _from_pil(drawn, image)


@no_grad()
def draw_segmentation_masks(image, masks, alpha=0.8, colors=None):
    """An image with masks ``[n, height, width]`` of bools in colours over it."""
    image = _checked(image, "draw_segmentation_masks")
    masks = masks[None] if masks.ndim == 2 else masks
    if masks.ndim != 3:
        raise ValueError("masks must be of shape (H, W) or (batch_size, H, W)")
    if masks.dtype != _C.bool:
        raise ValueError(f"The masks must be of dtype bool. Got {masks.dtype}")
    if masks.shape[-2:] != image.shape[-2:]:
        raise ValueError("The image and the masks must have the same height and width")
    if not len(masks):
        return image
    scale = 1 if image.dtype == _C.uint8 else 255
    found = image.clone()
    for mask, colour in zip(masks, _colours(colors, len(masks))):
        values = _C.tensor([v / scale for v in colour] if scale > 1 else list(colour), dtype=image.dtype, device=image.device)
        found = _torch.where(mask, values[:, None, None], found)
    if int(masks.sum(0).max().item()) > 1:
        import warnings

        warnings.warn("Overlapping masks: the last one is seen")
    return (image * (1 - alpha) + found * alpha).to(image.dtype)


@no_grad()
def draw_keypoints(image, keypoints, connectivity=None, colors=None, radius=2, width=3, visibility=None):
    """An image with key points ``[objects, points, 2]`` as discs, and lines between pairs of them."""
    image = _checked(image, "draw_keypoints")
    if keypoints.ndim != 3:
        raise ValueError("keypoints must be of shape (num_instances, K, 2)")
    pil, colour, draws, _ = _pillow("draw_keypoints")
    seen = _torch.ones(keypoints.shape[:-1], dtype=_C.bool) if visibility is None else visibility.to(_C.bool)
    seen = seen.unsqueeze(0) if seen.ndim == 1 else seen
    if tuple(seen.shape) != tuple(keypoints.shape[:-1]):
        raise ValueError(f"keypoints and visibility must have the same dimensionality for num_instances and K. Got {seen.shape} and {keypoints.shape}")
    drawn = _to_pil(image, pil)
    draw = draws.Draw(drawn)
    ink = colour.getrgb(colors) if isinstance(colors, str) else colors
    for points, visible in zip(keypoints.to(_C.int64).tolist(), seen.tolist()):
        for (x, y, *_), shown in zip(points, visible):
            if shown:
                draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=ink, outline=None, width=0)
        for first, second in connectivity or ():
            if visible[first] and visible[second]:
                draw.line((tuple(points[first][:2]), tuple(points[second][:2])), width=width)
    return _from_pil(drawn, image)


def _wheel():
    """Colours of directions: ramps between red, yellow, green, cyan, blue and magenta."""
    found, at = _torch.zeros((55, 3)), 0
    for steps, full, ramp, falling in ((15, 0, 1, False), (6, 1, 0, True), (4, 1, 2, False), (11, 2, 1, True), (13, 2, 0, False), (6, 0, 2, True)):
        rise = _torch.floor(255 * _torch.arange(0, steps) / steps)
        found[at : at + steps, full] = 255
        found[at : at + steps, ramp] = 255 - rise if falling else rise
        at += steps
    return found


@no_grad()
def flow_to_image(flow):
    """Flows ``[2, height, width]``, or a batch of them, as images: colour is direction, saturation is speed."""
    if flow.dtype != _C.float32:
        raise ValueError(f"Flow should be of dtype torch.float, got {flow.dtype}.")
    shape = flow.shape
    flow = flow[None] if flow.ndim == 3 else flow
    if flow.ndim != 4 or flow.shape[1] != 2:
        raise ValueError(f"Input flow should have shape (2, H, W) or (N, 2, H, W), got {shape}.")
    speed = (flow**2).sum(1).sqrt()
    # The least step of single precision keeps zero apart from the divisor.
    flow = flow / (speed.max() + 2.0**-23)
    wheel = _wheel().to(flow.device)
    speed = (flow**2).sum(1).sqrt()
    place = (_torch.atan2(-flow[:, 1], -flow[:, 0]) / math.pi + 1) / 2 * (wheel.shape[0] - 1)
    low = place.floor().long()
    high = _torch.where(low + 1 == wheel.shape[0], 0, low + 1)
    part = place - low
    found = []
    for channel in range(3):
        colour = (1 - part) * (wheel[low, channel] / 255) + part * (wheel[high, channel] / 255)
        found.append((255 * (1 - speed * (1 - colour))).floor().to(_C.uint8))
    images = _torch.stack(found, 1)
    return images[0] if len(shape) == 3 else images
