"""Boxes: areas, overlaps, and non-maximum suppression."""

from ... import _C

__all__ = [
    "batched_nms", "box_area", "box_convert", "box_iou", "clip_boxes_to_image", "complete_box_iou", "distance_box_iou", "generalized_box_iou", "masks_to_boxes", "nms",
    "remove_small_boxes",
]

_torch = _C._torch


def _wide(t):
    """Converts to a dtype wide enough for products of coordinates."""
    if t.is_floating_point():
        return t if t.dtype in (_C.float32, _C.float64) else t.float()
    return t if t.dtype in (_C.int32, _C.int64) else t.int()


def box_area(boxes):
    """Areas of boxes ``[n, 4]`` given by corners."""
    boxes = _wide(boxes)
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def _overlap(a, b):
    """Intersection and union of each pair."""
    low, high = _torch.maximum(a[:, None, :2], b[:, :2]), _torch.minimum(a[:, None, 2:], b[:, 2:])
    size = _wide(high - low).clamp(min=0)
    shared = size[..., 0] * size[..., 1]
    return shared, box_area(a)[:, None] + box_area(b) - shared


def box_iou(boxes1, boxes2, fmt="xyxy"):
    """Intersection over union of each pair."""
    if fmt != "xyxy":
        boxes1, boxes2 = box_convert(boxes1, fmt, "xyxy"), box_convert(boxes2, fmt, "xyxy")
    shared, covered = _overlap(boxes1, boxes2)
    return shared / covered


def _hull(a, b):
    return _torch.minimum(a[:, None, :2], b[:, :2]), _torch.maximum(a[:, None, 2:], b[:, 2:])


def generalized_box_iou(boxes1, boxes2):
    """Generalised IoU: ``box_iou`` minus the fraction of the pair's hull that neither covers."""
    shared, covered = _overlap(boxes1, boxes2)
    low, high = _hull(boxes1, boxes2)
    size = _wide(high - low).clamp(min=0)
    hull = size[..., 0] * size[..., 1]
    return shared / covered - (hull - covered) / hull


def _distance(boxes1, boxes2, eps):
    low, high = _hull(boxes1, boxes2)
    size = _wide(high - low).clamp(min=0)
    diagonal = (size**2).sum(-1) + eps
    centres = [(b[:, :2] + b[:, 2:]) / 2 for b in (boxes1, boxes2)]
    return box_iou(boxes1, boxes2), (_wide(centres[0][:, None] - centres[1]) ** 2).sum(-1) / diagonal


def distance_box_iou(boxes1, boxes2, eps=1e-7):
    """Distance IoU: ``box_iou`` minus the distance of the centres relative to the hull's diagonal."""
    iou, distance = _distance(boxes1, boxes2, eps)
    return iou - distance


def complete_box_iou(boxes1, boxes2, eps=1e-7):
    """Complete IoU: ``distance_box_iou`` minus the difference of the aspect ratios."""
    import math

    iou, distance = _distance(boxes1, boxes2, eps)
    angles = [((b[:, 2] - b[:, 0]) / (b[:, 3] - b[:, 1])).atan() for b in (boxes1, boxes2)]
    v = 4 / math.pi**2 * (angles[0][:, None] - angles[1]) ** 2
    weight = (v / (1 - iou + v + eps)).detach()
    return iou - distance - weight * v


def nms(boxes, scores, iou_threshold):
    """Indices of boxes that no better box overlaps by more than a threshold, best first."""
    return _C._nn._nms(boxes, scores, iou_threshold)


def batched_nms(boxes, scores, idxs, iou_threshold):
    """``nms`` within each group of ``idxs``."""
    if boxes.numel() == 0:
        return _torch.empty(0, dtype=_C.int64, device=boxes.device)
    # Groups are moved apart, so that boxes of different groups never overlap.
    offsets = idxs.to(boxes.dtype) * (boxes.max() + 1)
    return nms(boxes + offsets[:, None], scores, iou_threshold)


def remove_small_boxes(boxes, min_size):
    """Indices of boxes with sides of at least a size."""
    sides = boxes[:, 2:] - boxes[:, :2]
    return (sides >= min_size).all(1).nonzero().squeeze(1)


def clip_boxes_to_image(boxes, size):
    """Boxes within an image of ``(height, width)``."""
    height, width = size
    limits = _C.tensor([width, height] * (boxes.shape[-1] // 2), dtype=boxes.dtype, device=boxes.device)
    return _torch.minimum(boxes.clamp(min=0), limits)


def box_convert(boxes, in_fmt, out_fmt):
    """Boxes as corners (``xyxy``), corner and size (``xywh``) or centre and size (``cxcywh``)."""
    known = ("xyxy", "xywh", "cxcywh")
    if in_fmt not in known or out_fmt not in known:
        raise ValueError(f"Unsupported Bounding Box Conversions for given in_fmt {in_fmt} and out_fmt {out_fmt}")
    a, b, c, d = boxes.unbind(-1)
    if in_fmt == "xywh":
        c, d = a + c, b + d
    elif in_fmt == "cxcywh":
        a, b, c, d = a - 0.5 * c, b - 0.5 * d, a + 0.5 * c, b + 0.5 * d
    if out_fmt == "xywh":
        c, d = c - a, d - b
    elif out_fmt == "cxcywh":
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    return _torch.stack([a, b, c, d], -1)


def masks_to_boxes(masks):
    """The boxes around masks ``[n, height, width]``."""
    found = _torch.zeros((masks.shape[0], 4), device=masks.device)
    for at, mask in enumerate(masks):
        ys, xs = (mask != 0).nonzero().unbind(1)
        found[at] = _torch.stack([xs.min(), ys.min(), xs.max(), ys.max()]).to(found.dtype)
    return found
