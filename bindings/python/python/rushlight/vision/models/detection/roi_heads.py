"""Heads on proposed regions: classes and boxes, masks, key points."""

from .... import _C, nn
from ...ops import batched_nms, box_iou, clip_boxes_to_image, remove_small_boxes, roi_align
from . import _utils as det_utils

_torch = _C._torch
F = nn.functional


def fastrcnn_loss(class_logits, box_regression, labels, regression_targets):
    """Losses of the classes and of the boxes."""
    labels, targets = _torch.cat(labels, dim=0), _torch.cat(list(regression_targets), dim=0)
    positive = (labels > 0).nonzero().squeeze(1)
    codes = box_regression.reshape(box_regression.shape[0], -1, 4)[positive, labels[positive]]
    box_loss = F.smooth_l1_loss(codes, targets[positive], beta=1 / 9, reduction="sum") / labels.numel()
    return F.cross_entropy(class_logits, labels), box_loss


# Masks.


def maskrcnn_inference(x, labels):
    """For each image, the masks of the boxes' classes as probabilities."""
    counts, labels = [len(label) for label in labels], _torch.cat(labels)
    masks = x.sigmoid()[_torch.arange(x.shape[0], device=labels.device), labels][:, None]
    return masks.split(counts, 0)


def project_masks_on_boxes(gt_masks, boxes, matched_idxs, M):
    """The parts of objects' masks within boxes, ``M`` pixels wide."""
    rois = _torch.cat([matched_idxs.to(boxes)[:, None], boxes], dim=1)
    return roi_align(gt_masks[:, None].to(rois), rois, (M, M), 1.0)[:, 0]


def maskrcnn_loss(mask_logits, proposals, gt_masks, gt_labels, mask_matched_idxs):
    """The loss of masks, of the objects' classes alone."""
    labels = _torch.cat([known[index] for known, index in zip(gt_labels, mask_matched_idxs)], dim=0)
    side = mask_logits.shape[-1]
    targets = _torch.cat([project_masks_on_boxes(m, p, i, side) for m, p, i in zip(gt_masks, proposals, mask_matched_idxs)], dim=0)
    if targets.numel() == 0:
        return mask_logits.sum() * 0
    return F.binary_cross_entropy_with_logits(mask_logits[_torch.arange(labels.shape[0], device=labels.device), labels], targets)


def expand_boxes(boxes, scale):
    """Boxes scaled about their centres."""
    half, centre = (boxes[:, 2:] - boxes[:, :2]) * 0.5 * scale, (boxes[:, :2] + boxes[:, 2:]) * 0.5
    return _torch.cat([centre - half, centre + half], 1)


def expand_masks(mask, padding):
    """Masks with zeros around them, and the factor by which they have grown."""
    side = mask.shape[-1]
    return F.pad(mask, (padding,) * 4), float(side + 2 * padding) / side


def paste_mask_in_image(mask, box, im_h, im_w):
    """A mask resized to its box, within an image of zeros."""
    left, top, right, bottom = (int(v) for v in box)
    width, height = max(right - left + 1, 1), max(bottom - top + 1, 1)
    mask = F.interpolate(mask[None, None], size=(height, width), mode="bilinear", align_corners=False)[0, 0]
    image = _torch.zeros((im_h, im_w), dtype=mask.dtype, device=mask.device)
    x0, x1, y0, y1 = max(left, 0), min(right + 1, im_w), max(top, 0), min(bottom + 1, im_h)
    image[y0:y1, x0:x1] = mask[y0 - top : y1 - top, x0 - left : x1 - left]
    return image


def paste_masks_in_image(masks, boxes, img_shape, padding=1):
    """Masks ``[n, 1, side, side]`` as images ``[n, 1, height, width]``."""
    masks, scale = expand_masks(masks, padding)
    boxes = expand_boxes(boxes, scale).to(_C.int64)
    found = [paste_mask_in_image(mask[0], box, *img_shape) for mask, box in zip(masks, boxes.tolist())]
    return _torch.stack(found, dim=0)[:, None] if found else masks.new_empty((0, 1, *img_shape))


# Key points.


def keypoints_to_heatmap(keypoints, rois, heatmap_size):
    """The pixels of heat maps in which key points lie, and which of them are seen and within."""
    origin = rois[:, None, :2]
    scale = (heatmap_size / (rois[:, 2:] - rois[:, :2]))[:, None]
    edge = keypoints[..., :2] == rois[:, None, 2:]
    at = ((keypoints[..., :2] - origin) * scale).floor().long()
    at = at.masked_fill(edge, heatmap_size - 1)
    valid = ((at >= 0) & (at < heatmap_size)).all(-1) & (keypoints[..., 2] > 0)
    return (at[..., 1] * heatmap_size + at[..., 0]) * valid.long(), valid.long()


def heatmaps_to_keypoints(maps, rois):
    """Key points ``[n, points, 3]`` and their scores: the peaks of heat maps resized to their boxes by cubics."""
    sides = (rois[:, 2:] - rois[:, :2]).clamp(min=1)
    whole = sides.ceil()
    count = maps.shape[1]
    places, scores = [], []
    for at in range(len(rois)):
        width, height = (int(v) for v in whole[at].tolist())
        found = F.interpolate(maps[at : at + 1], size=(height, width), mode="bicubic", align_corners=False)[0].reshape(count, -1)
        peak = found.argmax(dim=1)
        across, down = peak % width, peak.div(width, rounding_mode="floor")
        ratio = sides[at] / whole[at]
        x, y = ((p.float() + 0.5) * r + o for p, r, o in zip((across, down), ratio, rois[at, :2]))
        places.append(_torch.stack([x, y, _torch.ones_like(x)], 1))
        scores.append(found[_torch.arange(count, device=found.device), peak])
    if not places:
        return maps.new_zeros((0, count, 3)), maps.new_zeros((0, count))
    return _torch.stack(places), _torch.stack(scores)


def keypointrcnn_loss(keypoint_logits, proposals, gt_keypoints, keypoint_matched_idxs):
    """The loss of heat maps at the seen key points."""
    rows, points, height, width = keypoint_logits.shape
    if height != width:
        raise ValueError(f"keypoint_logits height and width (last two elements of shape) should be equal. Instead got H = {height} and W = {width}")
    found = [keypoints_to_heatmap(k[i], p, height) for p, k, i in zip(proposals, gt_keypoints, keypoint_matched_idxs)]
    targets, valid = (_torch.cat([one[at].view(-1) for one in found], dim=0) for at in (0, 1))
    valid = valid.nonzero().squeeze(1)
    if targets.numel() == 0 or len(valid) == 0:
        return keypoint_logits.sum() * 0
    return F.cross_entropy(keypoint_logits.view(rows * points, height * width)[valid], targets[valid])


def keypointrcnn_inference(x, boxes):
    """For each image, key points and their scores."""
    found = [heatmaps_to_keypoints(maps, box) for maps, box in zip(x.split([len(b) for b in boxes], dim=0), boxes)]
    return [one[0] for one in found], [one[1] for one in found]


class RoIHeads(nn.Module):
    """Heads of boxes and, if given, of masks and key points."""

    def __init__(
        self, box_roi_pool, box_head, box_predictor, fg_iou_thresh, bg_iou_thresh, batch_size_per_image, positive_fraction, bbox_reg_weights, score_thresh, nms_thresh,
        detections_per_img, mask_roi_pool=None, mask_head=None, mask_predictor=None, keypoint_roi_pool=None, keypoint_head=None, keypoint_predictor=None,
    ):
        super().__init__()
        self.box_similarity = box_iou
        self.proposal_matcher = det_utils.Matcher(fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=False)
        self.fg_bg_sampler = det_utils.BalancedPositiveNegativeSampler(batch_size_per_image, positive_fraction)
        self.box_coder = det_utils.BoxCoder(bbox_reg_weights or (10.0, 10.0, 5.0, 5.0))
        self.box_roi_pool, self.box_head, self.box_predictor = box_roi_pool, box_head, box_predictor
        self.score_thresh, self.nms_thresh, self.detections_per_img = score_thresh, nms_thresh, detections_per_img
        self.mask_roi_pool, self.mask_head, self.mask_predictor = mask_roi_pool, mask_head, mask_predictor
        self.keypoint_roi_pool, self.keypoint_head, self.keypoint_predictor = keypoint_roi_pool, keypoint_head, keypoint_predictor

    def has_mask(self):
        return None not in (self.mask_roi_pool, self.mask_head, self.mask_predictor)

    def has_keypoint(self):
        return None not in (self.keypoint_roi_pool, self.keypoint_head, self.keypoint_predictor)

    def assign_targets_to_proposals(self, proposals, gt_boxes, gt_labels):
        """For each image: the number of each proposal's object, and its class; 0 is background, -1 neither."""
        numbers, labels = [], []
        for proposal, boxes, classes in zip(proposals, gt_boxes, gt_labels):
            if boxes.numel() == 0:
                numbers.append(_torch.zeros((len(proposal),), dtype=_C.int64, device=proposal.device))
                labels.append(_torch.zeros_like(numbers[-1]))
                continue
            matched = self.proposal_matcher(self.box_similarity(boxes, proposal))
            number = matched.clamp(min=0)
            label = classes[number].to(dtype=_C.int64)
            label[matched == self.proposal_matcher.BELOW_LOW_THRESHOLD] = 0
            label[matched == self.proposal_matcher.BETWEEN_THRESHOLDS] = -1
            numbers.append(number)
            labels.append(label)
        return numbers, labels

    def subsample(self, labels):
        positive, negative = self.fg_bg_sampler(labels)
        return [(p | n).nonzero().squeeze(1) for p, n in zip(positive, negative)]

    def add_gt_proposals(self, proposals, gt_boxes):
        return [_torch.cat((p, b)) for p, b in zip(proposals, gt_boxes)]

    def check_targets(self, targets):
        if targets is None:
            raise ValueError("targets should not be None")
        wanted = ["boxes", "labels"] + (["masks"] if self.has_mask() else [])
        for key in wanted:
            if not all(key in t for t in targets):
                raise ValueError(f"Every element of targets should have a {key} key")

    def select_training_samples(self, proposals, targets):
        """Samples of proposals and objects: proposals, numbers of their objects, classes, codes of their boxes."""
        self.check_targets(targets)
        dtype = proposals[0].dtype
        boxes, classes = [t["boxes"].to(dtype) for t in targets], [t["labels"] for t in targets]
        proposals = self.add_gt_proposals(proposals, boxes)
        numbers, labels = self.assign_targets_to_proposals(proposals, boxes, classes)
        matched = []
        for at, sampled in enumerate(self.subsample(labels)):
            proposals[at], labels[at], numbers[at] = proposals[at][sampled], labels[at][sampled], numbers[at][sampled]
            known = boxes[at] if boxes[at].numel() else _torch.zeros((1, 4), dtype=dtype, device=proposals[at].device)
            matched.append(known[numbers[at]])
        return proposals, numbers, labels, self.box_coder.encode(matched, proposals)

    def postprocess_detections(self, class_logits, box_regression, proposals, image_shapes):
        """The best boxes of each image, with scores and classes."""
        counts = [len(p) for p in proposals]
        boxes, scores = self.box_coder.decode(box_regression, proposals).split(counts, 0), class_logits.softmax(-1).split(counts, 0)
        found = [], [], []
        for box, score, shape in zip(boxes, scores, image_shapes):
            box = clip_boxes_to_image(box, shape)
            label = _torch.arange(class_logits.shape[-1], device=box.device).view(1, -1).expand_as(score)
            # The first class is background.
            box, score, label = box[:, 1:].reshape(-1, 4), score[:, 1:].reshape(-1), label[:, 1:].reshape(-1)
            keep = (score > self.score_thresh).nonzero().squeeze(1)
            box, score, label = box[keep], score[keep], label[keep]
            keep = remove_small_boxes(box, min_size=1e-2)
            box, score, label = box[keep], score[keep], label[keep]
            keep = batched_nms(box, score, label, self.nms_thresh)[: self.detections_per_img]
            for values, one in zip(found, (box[keep], score[keep], label[keep])):
                values.append(one)
        return found

    def forward(self, features, proposals, image_shapes, targets=None):
        if targets is not None:
            for target in targets:
                if target["boxes"].dtype not in (_C.float32, _C.float64, _C.float16):
                    raise TypeError(f"target boxes must of float type, instead got {target['boxes'].dtype}")
                if target["labels"].dtype != _C.int64:
                    raise TypeError(f"target labels must of int64 type, instead got {target['labels'].dtype}")
        matched = labels = codes = None
        if self.training:
            proposals, matched, labels, codes = self.select_training_samples(proposals, targets)
        logits, regression = self.box_predictor(self.box_head(self.box_roi_pool(features, proposals, image_shapes)))
        result, losses = [], {}
        if self.training:
            losses["loss_classifier"], losses["loss_box_reg"] = fastrcnn_loss(logits, regression, labels, codes)
            # Masks and key points are learned from the proposals with an object.
            positive = [(label > 0).nonzero().squeeze(1) for label in labels]
            regions, numbers = [p[i] for p, i in zip(proposals, positive)], [m[i] for m, i in zip(matched, positive)]
        else:
            found = zip(*self.postprocess_detections(logits, regression, proposals, image_shapes))
            result = [{"boxes": box, "labels": label, "scores": score} for box, score, label in found]
            regions, numbers = [one["boxes"] for one in result], None
        if self.has_mask():
            logits = self.mask_predictor(self.mask_head(self.mask_roi_pool(features, regions, image_shapes)))
            if self.training:
                losses["loss_mask"] = maskrcnn_loss(logits, regions, [t["masks"] for t in targets], [t["labels"] for t in targets], numbers)
            else:
                for one, masks in zip(result, maskrcnn_inference(logits, [one["labels"] for one in result])):
                    one["masks"] = masks
        if self.has_keypoint():
            logits = self.keypoint_predictor(self.keypoint_head(self.keypoint_roi_pool(features, regions, image_shapes)))
            if self.training:
                losses["loss_keypoint"] = keypointrcnn_loss(logits, regions, [t["keypoints"] for t in targets], numbers)
            else:
                for one, points, scores in zip(result, *keypointrcnn_inference(logits, regions)):
                    one["keypoints"], one["keypoints_scores"] = points, scores
        return result, losses
