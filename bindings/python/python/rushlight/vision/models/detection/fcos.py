"""FCOS: a detector of one stage that needs no anchors; each pixel has one box."""

import math
from functools import partial

from .... import _C, nn
from ...ops import batched_nms, clip_boxes_to_image, generalized_box_iou_loss, sigmoid_focal_loss
from ...ops.feature_pyramid_network import LastLevelP6P7
from . import _utils as det_utils
from .anchor_utils import AnchorGenerator
from .backbone_utils import _resnet_fpn_extractor, detector
from .faster_rcnn import frozen
from .retinanet import best_of_levels
from .rpn import permute_and_flatten
from .transform import GeneralizedRCNNTransform

_torch = _C._torch
_norm = partial(nn.GroupNorm, 32)


def _convs(channels, count, norm_layer):
    layers = []
    for _ in range(count):
        layers += [nn.Conv2d(channels, channels, kernel_size=3, stride=1, padding=1), (norm_layer or _norm)(channels), nn.ReLU()]
    return nn.Sequential(*layers)


def _init(module):
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)


def _rows(out, columns):
    return permute_and_flatten(out, out.shape[0], -1, columns, *out.shape[-2:])


class FCOSClassificationHead(nn.Module):
    """Scores of classes."""

    def __init__(self, in_channels, num_anchors, num_classes, num_convs=4, prior_probability=0.01, norm_layer=None):
        super().__init__()
        self.num_classes, self.num_anchors = num_classes, num_anchors
        self.conv = _convs(in_channels, num_convs, norm_layer)
        self.cls_logits = nn.Conv2d(in_channels, num_anchors * num_classes, kernel_size=3, stride=1, padding=1)
        _init(self)
        nn.init.constant_(self.cls_logits.bias, -math.log((1 - prior_probability) / prior_probability))

    def forward(self, x):
        return _torch.cat([_rows(self.cls_logits(self.conv(f)), self.num_classes) for f in x], dim=1)


class FCOSRegressionHead(nn.Module):
    """Distances of the sides of boxes, and how central a pixel is."""

    def __init__(self, in_channels, num_anchors, num_convs=4, norm_layer=None):
        super().__init__()
        self.conv = _convs(in_channels, num_convs, norm_layer)
        self.bbox_reg = nn.Conv2d(in_channels, num_anchors * 4, kernel_size=3, stride=1, padding=1)
        self.bbox_ctrness = nn.Conv2d(in_channels, num_anchors, kernel_size=3, stride=1, padding=1)
        _init(self)

    def forward(self, x):
        maps = [self.conv(f) for f in x]
        codes = [_rows(self.bbox_reg(m).relu(), 4) for m in maps]
        return _torch.cat(codes, dim=1), _torch.cat([_rows(self.bbox_ctrness(m), 1) for m in maps], dim=1)


class FCOSHead(nn.Module):
    """Both heads."""

    def __init__(self, in_channels, num_anchors, num_classes, num_convs=4):
        super().__init__()
        self.box_coder = det_utils.BoxLinearCoder(normalize_by_size=True)
        self.classification_head = FCOSClassificationHead(in_channels, num_anchors, num_classes, num_convs)
        self.regression_head = FCOSRegressionHead(in_channels, num_anchors, num_convs)

    def compute_loss(self, targets, head_outputs, anchors, matched_idxs):
        logits, codes, centrality = (head_outputs[k] for k in ("cls_logits", "bbox_regression", "bbox_ctrness"))
        labels, boxes = [], []
        for target, matched in zip(targets, matched_idxs):
            if len(target["labels"]) == 0:
                label, box = target["labels"].new_zeros((len(matched),)), target["boxes"].new_zeros((len(matched), 4))
            else:
                label, box = target["labels"][matched.clamp(min=0)], target["boxes"][matched.clamp(min=0)]
            # -1 is background.
            labels.append(_torch.where(matched < 0, -1, label))
            boxes.append(box)
        labels, boxes, anchors = _torch.stack(labels), _torch.stack(boxes), _torch.stack(list(anchors))
        foreground = labels >= 0
        count = max(1, foreground.sum().item())
        goal = _torch.zeros_like(logits)
        goal[foreground, labels[foreground]] = 1.0
        loss_cls = sigmoid_focal_loss(logits, goal, reduction="sum")
        decoded = self.box_coder.decode(codes, anchors)
        loss_box = generalized_box_iou_loss(decoded[foreground], boxes[foreground], reduction="sum")
        sides = self.box_coder.encode(anchors, boxes)[foreground]
        if len(sides) == 0:
            central = sides.new_zeros(sides.shape[:-1])
        else:
            across, down = sides[:, [0, 2]], sides[:, [1, 3]]
            central = ((across.min(-1)[0] / across.max(-1)[0]) * (down.min(-1)[0] / down.max(-1)[0])).sqrt()
        loss_central = nn.functional.binary_cross_entropy_with_logits(centrality.squeeze(2)[foreground], central, reduction="sum")
        return {"classification": loss_cls / count, "bbox_regression": loss_box / count, "bbox_ctrness": loss_central / count}

    def forward(self, x):
        codes, centrality = self.regression_head(x)
        return {"cls_logits": self.classification_head(x), "bbox_regression": codes, "bbox_ctrness": centrality}


class FCOS(det_utils.Detector):
    """The detector over a backbone with ``out_channels``."""

    def __init__(
        self, backbone, num_classes, min_size=800, max_size=1333, image_mean=None, image_std=None, anchor_generator=None, head=None, center_sampling_radius=1.5,
        score_thresh=0.2, nms_thresh=0.6, detections_per_img=100, topk_candidates=1000, **kwargs,
    ):
        super().__init__()
        if not hasattr(backbone, "out_channels"):
            raise ValueError(
                "backbone should contain an attribute out_channels specifying the number of output channels (assumed to be the same for all the levels)"
            )
        self.backbone = backbone
        self.anchor_generator = anchor_generator or AnchorGenerator(((8,), (16,), (32,), (64,), (128,)), ((1.0,),) * 5)
        if self.anchor_generator.num_anchors_per_location()[0] != 1:
            raise ValueError(f"anchor_generator.num_anchors_per_location()[0] should be 1 instead of {self.anchor_generator.num_anchors_per_location()[0]}")
        self.head = head or FCOSHead(backbone.out_channels, 1, num_classes)
        self.box_coder = det_utils.BoxLinearCoder(normalize_by_size=True)
        self.transform = GeneralizedRCNNTransform(min_size, max_size, image_mean or [0.485, 0.456, 0.406], image_std or [0.229, 0.224, 0.225], **kwargs)
        self.center_sampling_radius, self.score_thresh, self.nms_thresh = center_sampling_radius, score_thresh, nms_thresh
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates

    def _match(self, anchors, boxes, levels):
        """The object of each pixel: the smallest that is near, around it, and of its level's size; else -1."""
        if boxes.numel() == 0:
            return _torch.full((anchors.size(0),), -1, dtype=_C.int64, device=anchors.device)
        at, size = (anchors[:, :2] + anchors[:, 2:]) / 2, anchors[:, 2] - anchors[:, 0]
        centre = (boxes[:, :2] + boxes[:, 2:]) / 2
        near = (at[:, None] - centre[None]).abs().max(dim=2)[0] < self.center_sampling_radius * size[:, None]
        x, y = at.unsqueeze(2).unbind(dim=1)
        left, top, right, bottom = boxes.unsqueeze(0).unbind(dim=2)
        sides = _torch.stack([x - left, y - top, right - x, bottom - y], dim=2)
        low, high = size * 4, size * 8
        low[: levels[0]], high[-levels[-1] :] = 0, float("inf")
        reach = sides.max(dim=2)[0]
        near = near & (sides.min(dim=2)[0] > 0) & (reach > low[:, None]) & (reach < high[:, None])
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        value, number = (near.to(_C.float32) * (1e8 - area[None])).max(dim=1)
        return _torch.where(value < 1e-5, -1, number)

    def _losses(self, targets, found, anchors, features):
        levels = det_utils.levels_of(features, found["cls_logits"].shape[1])
        matched = [self._match(anchor, target["boxes"], levels) for anchor, target in zip(anchors, targets)]
        return self.head.compute_loss(targets, found, anchors, matched)

    def _detections(self, found, anchors, features, image_shapes):
        levels = det_utils.levels_of(features, found["cls_logits"].shape[1])
        result = []
        for logits, codes, centrality, anchor, shape in zip(found["cls_logits"], found["bbox_regression"], found["bbox_ctrness"], anchors, image_shapes):
            scores = (logits.sigmoid() * centrality.sigmoid()).sqrt()
            chosen = list(best_of_levels(scores, levels, self.score_thresh, self.topk_candidates))
            number, label, score = (_torch.cat([one[k] for one in chosen]) for k in range(3))
            boxes = clip_boxes_to_image(self.box_coder.decode(codes[number], anchor[number]), shape)
            keep = batched_nms(boxes, score, label, self.nms_thresh)[: self.detections_per_img]
            result.append({"boxes": boxes[keep], "scores": score[keep], "labels": label[keep]})
        return result


def _resnet(is_trained, trained, backbone, classes, pretrained_backbone, **kwargs):
    body = _resnet_fpn_extractor(backbone(norm_layer=frozen(is_trained)), trained, returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(256, 256))
    return FCOS(body, classes, **kwargs)


__all__ = ["FCOS", *detector(globals(), "fcos_resnet50_fpn", "resnet50", (5, 3), _resnet)]
