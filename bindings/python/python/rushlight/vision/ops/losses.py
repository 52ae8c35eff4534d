"""Losses for detection."""

import math

from ... import _C

__all__ = ["complete_box_iou_loss", "distance_box_iou_loss", "generalized_box_iou_loss", "sigmoid_focal_loss"]

_torch = _C._torch


def _reduced(loss, reduction):
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"Invalid Value for arg 'reduction': '{reduction}'. Supported reduction modes: 'none', 'mean', 'sum'")
    if reduction == "mean" and not loss.numel():
        return 0.0 * loss.sum()
    return loss if reduction == "none" else getattr(loss, reduction)()


def sigmoid_focal_loss(inputs, targets, alpha=0.25, gamma=2, reduction="none"):
    """Focal loss: cross entropy of logits that gives well-classified samples less weight."""
    if not (0 <= alpha <= 1) and alpha != -1:
        raise ValueError(f"Invalid alpha value: {alpha}. alpha must be in the range [0,1] or -1 for ignore.")
    p = inputs.sigmoid()
    loss = _C._nn.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    loss = loss * (1 - (p * targets + (1 - p) * (1 - targets))) ** gamma
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    return _reduced(loss, reduction)


def _pairs(boxes1, boxes2, eps):
    """Of each pair of boxes: the overlap over the union, the union, the corners of the hull."""
    a, b = (t if t.dtype == _C.float64 else t.float() for t in (boxes1, boxes2))
    sides = (_torch.minimum(a[..., 2:], b[..., 2:]) - _torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    shared = sides[..., 0] * sides[..., 1]
    areas = [(t[..., 2] - t[..., 0]) * (t[..., 3] - t[..., 1]) for t in (a, b)]
    union = areas[0] + areas[1] - shared
    return a, b, shared / (union + eps), union, _torch.maximum(a[..., 2:], b[..., 2:]) - _torch.minimum(a[..., :2], b[..., :2])


def generalized_box_iou_loss(boxes1, boxes2, reduction="none", eps=1e-7):
    """1 minus the generalised IoU of pairs of boxes."""
    _, _, iou, union, hull = _pairs(boxes1, boxes2, eps)
    area = hull[..., 0] * hull[..., 1]
    return _reduced(1 - (iou - (area - union) / (area + eps)), reduction)


def _distance(boxes1, boxes2, eps):
    a, b, iou, _, hull = _pairs(boxes1, boxes2, eps)
    centres = (a[..., :2] + a[..., 2:] - b[..., :2] - b[..., 2:]) / 2
    return 1 - iou + (centres**2).sum(-1) / ((hull**2).sum(-1) + eps), iou, a, b


def distance_box_iou_loss(boxes1, boxes2, reduction="none", eps=1e-7):
    """1 minus the distance IoU of pairs of boxes."""
    return _reduced(_distance(boxes1, boxes2, eps)[0], reduction)


def complete_box_iou_loss(boxes1, boxes2, reduction="none", eps=1e-7):
    """1 minus the complete IoU of pairs of boxes."""
    loss, iou, a, b = _distance(boxes1, boxes2, eps)
    angles = [((t[..., 2] - t[..., 0]) / (t[..., 3] - t[..., 1])).atan() for t in (b, a)]
    v = 4 / math.pi**2 * (angles[0] - angles[1]) ** 2
    weight = (v / (1 - iou + v + eps)).detach()
    return _reduced(loss + weight * v, reduction)
