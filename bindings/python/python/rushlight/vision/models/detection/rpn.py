"""The region proposal network: boxes that may hold an object."""

from .... import _C, nn
from ...ops import Conv2dNormActivation, batched_nms, box_iou, clip_boxes_to_image, remove_small_boxes
from . import _utils as det_utils
from .anchor_utils import AnchorGenerator  # noqa: F401

_torch = _C._torch
F = nn.functional


class RPNHead(nn.Module):
    """Convolutions, then the odds of an object and the shape of its box for each anchor."""

    _version = 2

    def __init__(self, in_channels, num_anchors, conv_depth=1):
        super().__init__()
        self.conv = nn.Sequential(*(Conv2dNormActivation(in_channels, in_channels, kernel_size=3, norm_layer=None) for _ in range(conv_depth)))
        self.cls_logits = nn.Conv2d(in_channels, num_anchors, kernel_size=1, stride=1)
        self.bbox_pred = nn.Conv2d(in_channels, num_anchors * 4, kernel_size=1, stride=1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.01)
                if layer.bias is not None:
                    nn.init.constant_(layer.bias, 0)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if (local_metadata.get("version") or 1) < 2:
            for kind in ("weight", "bias"):
                if f"{prefix}conv.{kind}" in state_dict:
                    state_dict[f"{prefix}conv.0.0.{kind}"] = state_dict.pop(f"{prefix}conv.{kind}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def forward(self, x):
        maps = [self.conv(feature) for feature in x]
        return [self.cls_logits(m) for m in maps], [self.bbox_pred(m) for m in maps]


def permute_and_flatten(layer, N, A, C, H, W):
    """``[N, A * C, H, W]`` as ``[N, H * W * A, C]``."""
    return layer.view(N, -1, C, H, W).permute(0, 3, 4, 1, 2).reshape(N, -1, C)


def concat_box_prediction_layers(box_cls, box_regression):
    """Predictions of all levels and images as rows."""
    found = [], []
    for classes, codes in zip(box_cls, box_regression):
        batch, channels, height, width = classes.shape
        anchors = codes.shape[1] // 4
        found[0].append(permute_and_flatten(classes, batch, anchors, channels // anchors, height, width))
        found[1].append(permute_and_flatten(codes, batch, anchors, 4, height, width))
    return _torch.cat(found[0], dim=1).flatten(0, -2), _torch.cat(found[1], dim=1).reshape(-1, 4)


class RegionProposalNetwork(nn.Module):
    """Proposals of a head, and their losses in training."""

    def __init__(
        self, anchor_generator, head, fg_iou_thresh, bg_iou_thresh, batch_size_per_image, positive_fraction, pre_nms_top_n, post_nms_top_n, nms_thresh, score_thresh=0.0,
    ):
        super().__init__()
        self.anchor_generator, self.head = anchor_generator, head
        self.box_coder = det_utils.BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
        self.box_similarity = box_iou
        self.proposal_matcher = det_utils.Matcher(fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=True)
        self.fg_bg_sampler = det_utils.BalancedPositiveNegativeSampler(batch_size_per_image, positive_fraction)
        self._pre_nms_top_n, self._post_nms_top_n = pre_nms_top_n, post_nms_top_n
        self.nms_thresh, self.score_thresh, self.min_size = nms_thresh, score_thresh, 1e-3

    def pre_nms_top_n(self):
        return self._pre_nms_top_n["training" if self.training else "testing"]

    def post_nms_top_n(self):
        return self._post_nms_top_n["training" if self.training else "testing"]

    def assign_targets_to_anchors(self, anchors, targets):
        """For each image: labels of anchors (1, 0, or -1 for neither) and their objects' boxes."""
        labels, boxes = [], []
        for anchor, target in zip(anchors, targets):
            known = target["boxes"]
            if known.numel() == 0:
                boxes.append(_torch.zeros_like(anchor))
                labels.append(_torch.zeros((len(anchor),), dtype=_C.float32, device=anchor.device))
                continue
            matched = self.proposal_matcher(self.box_similarity(known, anchor))
            boxes.append(known[matched.clamp(min=0)])
            label = (matched >= 0).to(_C.float32)
            label[matched == self.proposal_matcher.BETWEEN_THRESHOLDS] = -1.0
            labels.append(label)
        return labels, boxes

    def _get_top_n_idx(self, objectness, num_anchors_per_level):
        found, start = [], 0
        for level in objectness.split(num_anchors_per_level, 1):
            found.append(level.topk(min(self.pre_nms_top_n(), level.shape[1]), dim=1)[1] + start)
            start += level.shape[1]
        return _torch.cat(found, dim=1)

    def filter_proposals(self, proposals, objectness, image_shapes, num_anchors_per_level):
        """The best boxes of each image that do not overlap within their level."""
        count, device = proposals.shape[0], proposals.device
        objectness = objectness.detach().reshape(count, -1)
        numbers = [_torch.full((n,), at, dtype=_C.int64, device=device) for at, n in enumerate(num_anchors_per_level)]
        levels = _torch.cat(numbers).reshape(1, -1).expand_as(objectness)
        top = self._get_top_n_idx(objectness, num_anchors_per_level)
        chosen = _torch.arange(count, device=device)[:, None]
        scores, levels, proposals = objectness[chosen, top].sigmoid(), levels[chosen, top], proposals[chosen, top]
        found = [], []
        for boxes, score, level, shape in zip(proposals, scores, levels, image_shapes):
            boxes = clip_boxes_to_image(boxes, shape)
            keep = remove_small_boxes(boxes, self.min_size)
            boxes, score, level = boxes[keep], score[keep], level[keep]
            keep = (score >= self.score_thresh).nonzero().squeeze(1)
            boxes, score, level = boxes[keep], score[keep], level[keep]
            keep = batched_nms(boxes, score, level, self.nms_thresh)[: self.post_nms_top_n()]
            found[0].append(boxes[keep])
            found[1].append(score[keep])
        return found

    def compute_loss(self, objectness, pred_bbox_deltas, labels, regression_targets):
        """Losses of the odds and of the boxes, over samples of anchors."""
        positive, negative = (_torch.cat(masks).nonzero().squeeze(1) for masks in self.fg_bg_sampler(labels))
        sampled = _torch.cat([positive, negative], dim=0)
        labels, targets = _torch.cat(labels, dim=0), _torch.cat(list(regression_targets), dim=0)
        box_loss = F.smooth_l1_loss(pred_bbox_deltas[positive], targets[positive], beta=1 / 9, reduction="sum") / sampled.numel()
        return F.binary_cross_entropy_with_logits(objectness.flatten()[sampled], labels[sampled]), box_loss

    def forward(self, images, features, targets=None):
        maps = list(features.values())
        objectness, deltas = self.head(maps)
        anchors = self.anchor_generator(images, maps)
        levels = [o.shape[1] * o.shape[2] * o.shape[3] for o in objectness]
        objectness, deltas = concat_box_prediction_layers(objectness, deltas)
        proposals = self.box_coder.decode(deltas.detach(), anchors).view(len(anchors), -1, 4)
        boxes, _ = self.filter_proposals(proposals, objectness, images.image_sizes, levels)
        if not self.training:
            return boxes, {}
        if targets is None:
            raise ValueError("targets should not be None")
        labels, matched = self.assign_targets_to_anchors(anchors, targets)
        losses = self.compute_loss(objectness, deltas, labels, self.box_coder.encode(matched, anchors))
        return boxes, {"loss_objectness": losses[0], "loss_rpn_box_reg": losses[1]}
