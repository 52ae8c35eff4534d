"""RetinaNet: a detector of one stage with focal loss."""

import math
from functools import partial

from .... import _C, nn
from ...ops import Conv2dNormActivation, batched_nms, box_iou, clip_boxes_to_image, sigmoid_focal_loss
from ...ops.feature_pyramid_network import LastLevelP6P7
from . import _utils as det_utils
from .anchor_utils import AnchorGenerator
from .backbone_utils import _resnet_fpn_extractor, detector
from .faster_rcnn import frozen
from .rpn import permute_and_flatten
from .transform import GeneralizedRCNNTransform

_torch = _C._torch


def _default_anchorgen():
    sizes = tuple((x, int(x * 2 ** (1.0 / 3)), int(x * 2 ** (2.0 / 3))) for x in (32, 64, 128, 256, 512))
    return AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes))


class _Head(nn.Module):
    """Four convolutions, and one to the predictions: rows of ``columns`` numbers for each anchor."""

    _version = 2

    def __init__(self, in_channels, columns, name, outputs, norm_layer=None):
        super().__init__()
        self.conv = nn.Sequential(*(Conv2dNormActivation(in_channels, in_channels, norm_layer=norm_layer) for _ in range(4)))
        setattr(self, name, nn.Conv2d(in_channels, outputs, kernel_size=3, stride=1, padding=1))
        self._last, self._columns = name, columns
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.01)
                if layer.bias is not None:
                    nn.init.constant_(layer.bias, 0)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if (local_metadata.get("version") or 1) < 2:
            # The first version had convolutions and activations in turn.
            for i in range(4):
                for kind in ("weight", "bias"):
                    if f"{prefix}conv.{2 * i}.{kind}" in state_dict:
                        state_dict[f"{prefix}conv.{i}.0.{kind}"] = state_dict.pop(f"{prefix}conv.{2 * i}.{kind}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def forward(self, x):
        found = []
        for features in x:
            out = getattr(self, self._last)(self.conv(features))
            found.append(permute_and_flatten(out, out.shape[0], -1, self._columns, *out.shape[-2:]))
        return _torch.cat(found, dim=1)


class RetinaNetClassificationHead(_Head):
    """Scores of classes."""

    def __init__(self, in_channels, num_anchors, num_classes, prior_probability=0.01, norm_layer=None):
        super().__init__(in_channels, num_classes, "cls_logits", num_anchors * num_classes, norm_layer)
        nn.init.constant_(self.cls_logits.bias, -math.log((1 - prior_probability) / prior_probability))
        self.num_classes, self.num_anchors = num_classes, num_anchors
        self.BETWEEN_THRESHOLDS = det_utils.Matcher.BETWEEN_THRESHOLDS

    def compute_loss(self, targets, head_outputs, matched_idxs):
        losses = []
        for target, logits, matched in zip(targets, head_outputs["cls_logits"], matched_idxs):
            foreground = (matched >= 0).nonzero().squeeze(1)
            goal = _torch.zeros_like(logits)
            goal[foreground, target["labels"][matched[foreground]]] = 1.0
            valid = (matched != self.BETWEEN_THRESHOLDS).nonzero().squeeze(1)
            losses.append(sigmoid_focal_loss(logits[valid], goal[valid], reduction="sum") / max(1, len(foreground)))
        return sum(losses) / len(targets)


class RetinaNetRegressionHead(_Head):
    """Codes of boxes."""

    def __init__(self, in_channels, num_anchors, norm_layer=None):
        super().__init__(in_channels, 4, "bbox_reg", num_anchors * 4, norm_layer)
        self.box_coder, self._loss_type = det_utils.BoxCoder(weights=(1.0, 1.0, 1.0, 1.0)), "l1"

    def compute_loss(self, targets, head_outputs, anchors, matched_idxs):
        losses = []
        for target, codes, anchor, matched in zip(targets, head_outputs["bbox_regression"], anchors, matched_idxs):
            foreground = (matched >= 0).nonzero().squeeze(1)
            boxes = target["boxes"][matched[foreground]]
            loss = det_utils._box_loss(self._loss_type, self.box_coder, anchor[foreground], boxes, codes[foreground])
            losses.append(loss / max(1, len(foreground)))
        return sum(losses) / max(1, len(targets))


class RetinaNetHead(nn.Module):
    """Both heads."""

    def __init__(self, in_channels, num_anchors, num_classes, norm_layer=None):
        super().__init__()
        self.classification_head = RetinaNetClassificationHead(in_channels, num_anchors, num_classes, norm_layer=norm_layer)
        self.regression_head = RetinaNetRegressionHead(in_channels, num_anchors, norm_layer=norm_layer)

    def compute_loss(self, targets, head_outputs, anchors, matched_idxs):
        return {
            "classification": self.classification_head.compute_loss(targets, head_outputs, matched_idxs),
            "bbox_regression": self.regression_head.compute_loss(targets, head_outputs, anchors, matched_idxs),
        }

    def forward(self, x):
        return {"cls_logits": self.classification_head(x), "bbox_regression": self.regression_head(x)}


def best_of_levels(scores, levels, threshold, most):
    """For each level, the places of the best scores above a threshold: numbers of anchors, classes and scores."""
    for start, score in zip([sum(levels[:at]) for at in range(len(levels))], scores.split(levels)):
        classes, flat = score.shape[-1], score.flatten()
        places = (flat > threshold).nonzero().squeeze(1)
        value, order = flat[places].topk(min(len(places), most))
        places = places[order]
        yield start + places.div(classes, rounding_mode="floor"), places % classes, value


class RetinaNet(det_utils.Detector):
    """The detector over a backbone with ``out_channels``."""

    def __init__(
        self, backbone, num_classes, min_size=800, max_size=1333, image_mean=None, image_std=None, anchor_generator=None, head=None, proposal_matcher=None,
        score_thresh=0.05, nms_thresh=0.5, detections_per_img=300, fg_iou_thresh=0.5, bg_iou_thresh=0.4, topk_candidates=1000, **kwargs,
    ):
        super().__init__()
        if not hasattr(backbone, "out_channels"):
            raise ValueError(
                "backbone should contain an attribute out_channels specifying the number of output channels (assumed to be the same for all the levels)"
            )
        self.backbone = backbone
        self.anchor_generator = anchor_generator or _default_anchorgen()
        self.head = head or RetinaNetHead(backbone.out_channels, self.anchor_generator.num_anchors_per_location()[0], num_classes)
        self.proposal_matcher = proposal_matcher or det_utils.Matcher(fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=True)
        self.box_coder = det_utils.BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
        self.transform = GeneralizedRCNNTransform(min_size, max_size, image_mean or [0.485, 0.456, 0.406], image_std or [0.229, 0.224, 0.225], **kwargs)
        self.score_thresh, self.nms_thresh, self.detections_per_img, self.topk_candidates = score_thresh, nms_thresh, detections_per_img, topk_candidates

    def _losses(self, targets, found, anchors, features):
        return self.compute_loss(targets, found, anchors)

    def compute_loss(self, targets, head_outputs, anchors):
        matched = []
        for anchor, target in zip(anchors, targets):
            if target["boxes"].numel() == 0:
                matched.append(_torch.full((anchor.size(0),), -1, dtype=_C.int64, device=anchor.device))
            else:
                matched.append(self.proposal_matcher(box_iou(target["boxes"], anchor)))
        return self.head.compute_loss(targets, head_outputs, anchors, matched)

    def _detections(self, found, anchors, features, image_shapes):
        levels = det_utils.levels_of(features, found["cls_logits"].shape[1])
        result = []
        for logits, codes, anchor, shape in zip(found["cls_logits"], found["bbox_regression"], anchors, image_shapes):
            chosen = list(best_of_levels(logits.sigmoid(), levels, self.score_thresh, self.topk_candidates))
            number, label, score = (_torch.cat([one[k] for one in chosen]) for k in range(3))
            boxes = clip_boxes_to_image(self.box_coder.decode_single(codes[number], anchor[number]), shape)
            keep = batched_nms(boxes, score, label, self.nms_thresh)[: self.detections_per_img]
            result.append({"boxes": boxes[keep], "scores": score[keep], "labels": label[keep]})
        return result


def _resnet(is_trained, trained, backbone, classes, pretrained_backbone, **kwargs):
    body = _resnet_fpn_extractor(backbone(norm_layer=frozen(is_trained)), trained, returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(256, 256))
    return RetinaNet(body, classes, **kwargs)


def _resnet_v2(is_trained, trained, backbone, classes, pretrained_backbone, **kwargs):
    body = _resnet_fpn_extractor(backbone(), trained, returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(2048, 256))
    anchors = _default_anchorgen()
    head = RetinaNetHead(body.out_channels, anchors.num_anchors_per_location()[0], classes, norm_layer=partial(nn.GroupNorm, 32))
    head.regression_head._loss_type = "giou"
    return RetinaNet(body, classes, anchor_generator=anchors, head=head, **kwargs)


__all__ = [
    "RetinaNet", *detector(globals(), "retinanet_resnet50_fpn", "resnet50", (5, 3), _resnet),
    *detector(globals(), "retinanet_resnet50_fpn_v2", "resnet50", (5, 3), _resnet_v2),
]
