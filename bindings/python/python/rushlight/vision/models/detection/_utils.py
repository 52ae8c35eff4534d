"""Boxes as differences from anchors, assignment of objects to anchors, samples of anchors."""

import math

from .... import _C, nn
from ....autograd.grad_mode import no_grad
from ...ops import FrozenBatchNorm2d, complete_box_iou_loss, distance_box_iou_loss, generalized_box_iou_loss

_torch = _C._torch
F = nn.functional


class BalancedPositiveNegativeSampler:
    """Random samples of objects and background, a fraction of them objects if there are so many. Takes labels: 1 and more are objects, 0 is background."""

    def __init__(self, batch_size_per_image, positive_fraction):
        self.batch_size_per_image, self.positive_fraction = batch_size_per_image, positive_fraction

    def __call__(self, matched_idxs):
        found = [], []
        for labels in matched_idxs:
            kinds = (labels >= 1).nonzero().squeeze(1), (labels == 0).nonzero().squeeze(1)
            positive = min(kinds[0].numel(), int(self.batch_size_per_image * self.positive_fraction))
            counts = positive, min(kinds[1].numel(), self.batch_size_per_image - positive)
            for masks, places, count in zip(found, kinds, counts):
                mask = _torch.zeros_like(labels, dtype=_C.uint8)
                mask[places[_torch.randperm(places.numel(), device=places.device)[:count]]] = 1
                masks.append(mask)
        return found


def centres(boxes):
    """Centres and sides of boxes ``[n, 4]``."""
    sides = boxes[:, 2:] - boxes[:, :2]
    return boxes[:, :2] + 0.5 * sides, sides


class BoxCoder:
    """Boxes as shifts and scales of others, times weights."""

    def __init__(self, weights, bbox_xform_clip=math.log(1000.0 / 16)):
        self.weights, self.bbox_xform_clip = weights, bbox_xform_clip

    def encode(self, reference_boxes, proposals):
        """Codes of the boxes of each image, given their proposals."""
        counts = [len(b) for b in reference_boxes]
        return self.encode_single(_torch.cat(list(reference_boxes)), _torch.cat(list(proposals))).split(counts, 0)

    def encode_single(self, reference_boxes, proposals):
        weights = _C.tensor(self.weights, dtype=reference_boxes.dtype, device=reference_boxes.device)
        (at, size), (goal, goal_size) = centres(proposals), centres(reference_boxes)
        return _torch.cat([weights[:2] * (goal - at) / size, weights[2:] * (goal_size / size).log()], 1)

    def decode(self, rel_codes, boxes):
        """Boxes ``[n, kinds, 4]`` from codes ``[n, kinds * 4]`` and a list of proposals."""
        found = self.decode_single(rel_codes.reshape(sum(len(b) for b in boxes), -1), _torch.cat(list(boxes)))
        return found.reshape(found.shape[0], -1, 4)

    def decode_single(self, rel_codes, boxes):
        at, size = (t[:, None] for t in centres(boxes.to(rel_codes.dtype)))
        codes = rel_codes.reshape(rel_codes.shape[0], -1, 4) / _C.tensor(self.weights, dtype=rel_codes.dtype, device=rel_codes.device)
        centre = codes[..., :2] * size + at
        half = 0.5 * (codes[..., 2:].clamp(max=self.bbox_xform_clip).exp() * size)
        return _torch.cat([centre - half, centre + half], -1).reshape(rel_codes.shape[0], -1)


class BoxLinearCoder:
    """Boxes as distances of their sides from the centres of others, in units of their sides."""

    def __init__(self, normalize_by_size=True):
        self.normalize_by_size = normalize_by_size

    def _sizes(self, boxes, like):
        at = 0.5 * (boxes[..., :2] + boxes[..., 2:])
        size = boxes[..., 2:] - boxes[..., :2]
        return at, _torch.cat([size, size], -1).to(like.dtype)

    def encode(self, reference_boxes, proposals):
        at, size = self._sizes(reference_boxes, reference_boxes)
        codes = _torch.cat([at - proposals[..., :2], proposals[..., 2:] - at], -1)
        return codes / size if self.normalize_by_size else codes

    def decode(self, rel_codes, boxes):
        boxes = boxes.to(rel_codes.dtype)
        at, size = self._sizes(boxes, rel_codes)
        codes = rel_codes * size if self.normalize_by_size else rel_codes
        return _torch.cat([at - codes[..., :2], at + codes[..., 2:]], -1)


class Matcher:
    """The object of each anchor by overlap: its number, ``BELOW_LOW_THRESHOLD`` or ``BETWEEN_THRESHOLDS``."""

    BELOW_LOW_THRESHOLD = -1
    BETWEEN_THRESHOLDS = -2

    def __init__(self, high_threshold, low_threshold, allow_low_quality_matches=False):
        if low_threshold > high_threshold:
            raise ValueError("low_threshold should be <= high_threshold")
        self.high_threshold, self.low_threshold, self.allow_low_quality_matches = high_threshold, low_threshold, allow_low_quality_matches

    def __call__(self, match_quality_matrix):
        if match_quality_matrix.numel() == 0:
            what = "ground-truth" if match_quality_matrix.shape[0] == 0 else "proposal"
            raise ValueError(f"No {what} boxes available for one of the images during training")
        best, matches = match_quality_matrix.max(dim=0)
        found = matches.clone()
        found[best < self.low_threshold] = self.BELOW_LOW_THRESHOLD
        found[(best >= self.low_threshold) & (best < self.high_threshold)] = self.BETWEEN_THRESHOLDS
        if self.allow_low_quality_matches:
            # Each object keeps the anchors that overlap it most.
            highest = match_quality_matrix.max(dim=1)[0]
            keep = (match_quality_matrix == highest[:, None]).any(0)
            found = _torch.where(keep, matches, found)
        return found


class SSDMatcher(Matcher):
    """Each object also gets the anchor that overlaps it most."""

    def __init__(self, threshold):
        super().__init__(threshold, threshold)

    def __call__(self, match_quality_matrix):
        found = super().__call__(match_quality_matrix)
        best = match_quality_matrix.max(dim=1)[1]
        found[best] = _torch.arange(best.shape[0], dtype=_C.int64, device=best.device)
        return found


def overwrite_eps(model, eps):
    """Sets the epsilon of frozen norms."""
    for module in model.modules():
        if isinstance(module, FrozenBatchNorm2d):
            module.eps = eps


def retrieve_out_channels(model, size):
    """Channels of the maps that a backbone gives, found by running it."""
    was = model.training
    model.eval()
    with no_grad():
        device = next(model.parameters()).device
        maps = model(_torch.zeros((1, 3, size[1], size[0]), device=device))
    model.train(was)
    return [m.shape[1] for m in ([maps] if isinstance(maps, _C.Tensor) else maps.values())]


def _box_loss(type, box_coder, anchors_per_image, matched_gt_boxes_per_image, bbox_regression_per_image, cnf=None):
    """The sum of a loss between predicted codes and matched boxes: of codes (``l1``, ``smooth_l1``) or of boxes."""
    losses = {"ciou": complete_box_iou_loss, "diou": distance_box_iou_loss, "giou": generalized_box_iou_loss}
    if type in ("l1", "smooth_l1"):
        target = box_coder.encode_single(matched_gt_boxes_per_image, anchors_per_image)
        if type == "l1":
            return F.l1_loss(bbox_regression_per_image, target, reduction="sum")
        return F.smooth_l1_loss(bbox_regression_per_image, target, reduction="sum", beta=(cnf or {}).get("beta", 1.0))
    if type not in losses:
        raise ValueError(f"Unsupported loss: {type}")
    boxes = box_coder.decode_single(bbox_regression_per_image, anchors_per_image)
    return losses[type](boxes, matched_gt_boxes_per_image, reduction="sum", eps=(cnf or {}).get("eps", 1e-7))


def check_targets(targets):
    """Raises unless each image has boxes ``[n, 4]`` with positive sides."""
    if targets is None:
        raise AssertionError("targets should not be none when in training mode")
    for at, target in enumerate(targets):
        boxes = target["boxes"]
        if not isinstance(boxes, _C.Tensor):
            raise AssertionError(f"Expected target boxes to be of type Tensor, got {boxes.__class__}.")
        if boxes.dim() != 2 or boxes.shape[-1] != 4:
            raise AssertionError(f"Expected target boxes to be a tensor of shape [N, 4], got {boxes.shape}.")
        bad = (boxes[:, 2:] <= boxes[:, :2]).any(1)
        if bad.any():
            raise AssertionError(
                f"All bounding boxes should have positive height and width. Found invalid box {boxes[bad][0].tolist()} for target at index {at}."
            )


class Detector(nn.Module):
    """A network of one stage: a transform of images, a backbone, anchors and a head. Losses in training, boxes else."""

    def forward(self, images, targets=None):
        if self.training:
            check_targets(targets)
        sizes = [tuple(image.shape[-2:]) for image in images]
        images, targets = self.transform(images, targets)
        if targets is not None:
            check_targets(targets)
        features = self.backbone(images.tensors)
        features = [features] if isinstance(features, _C.Tensor) else list(features.values())
        found = self.head(features)
        anchors = self.anchor_generator(images, features)
        if self.training:
            return self._losses(targets, found, anchors, features)
        return self.transform.postprocess(self._detections(found, anchors, features, images.image_sizes), images.image_sizes, sizes)


def levels_of(features, anchors):
    """Anchors of each level: pixels times anchors per pixel."""
    pixels = [f.shape[2] * f.shape[3] for f in features]
    each = anchors // sum(pixels)
    return [n * each for n in pixels]
