"""SSD: a detector of one stage over maps of a shrinking network."""

from collections import OrderedDict

from .... import _C, nn
from ...ops import batched_nms, box_iou, clip_boxes_to_image
from . import _utils as det_utils
from .anchor_utils import DefaultBoxGenerator
from .backbone_utils import detector, freeze
from .rpn import permute_and_flatten
from .transform import GeneralizedRCNNTransform

_torch = _C._torch
F = nn.functional


def _xavier_init(conv):
    for layer in conv.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, 0.0)


class SSDScoringHead(nn.Module):
    """A module for each map; rows of ``num_columns`` numbers for each anchor."""

    def __init__(self, module_list, num_columns):
        super().__init__()
        self.module_list, self.num_columns = module_list, num_columns

    def forward(self, x):
        found = []
        for module, features in zip(self.module_list, x):
            out = module(features)
            found.append(permute_and_flatten(out, out.shape[0], -1, self.num_columns, *out.shape[-2:]))
        return _torch.cat(found, dim=1)


def _predictors(in_channels, num_anchors, columns):
    made = nn.ModuleList([nn.Conv2d(c, columns * a, kernel_size=3, padding=1) for c, a in zip(in_channels, num_anchors)])
    _xavier_init(made)
    return made


class SSDClassificationHead(SSDScoringHead):
    """Scores of classes."""

    def __init__(self, in_channels, num_anchors, num_classes):
        super().__init__(_predictors(in_channels, num_anchors, num_classes), num_classes)


class SSDRegressionHead(SSDScoringHead):
    """Codes of boxes."""

    def __init__(self, in_channels, num_anchors):
        super().__init__(_predictors(in_channels, num_anchors, 4), 4)


class SSDHead(nn.Module):
    """Both heads."""

    def __init__(self, in_channels, num_anchors, num_classes):
        super().__init__()
        self.classification_head = SSDClassificationHead(in_channels, num_anchors, num_classes)
        self.regression_head = SSDRegressionHead(in_channels, num_anchors)

    def forward(self, x):
        return {"bbox_regression": self.regression_head(x), "cls_logits": self.classification_head(x)}


class SSD(det_utils.Detector):
    """The detector over a backbone that gives maps by name."""

    def __init__(
        self, backbone, anchor_generator, size, num_classes, image_mean=None, image_std=None, head=None, score_thresh=0.01, nms_thresh=0.45, detections_per_img=200,
        iou_thresh=0.5, topk_candidates=400, positive_fraction=0.25, **kwargs,
    ):
        super().__init__()
        self.backbone, self.anchor_generator = backbone, anchor_generator
        self.box_coder = det_utils.BoxCoder(weights=(10.0, 10.0, 5.0, 5.0))
        if head is None:
            channels = backbone.out_channels if hasattr(backbone, "out_channels") else det_utils.retrieve_out_channels(backbone, size)
            anchors = anchor_generator.num_anchors_per_location()
            if len(channels) != len(anchors):
                raise ValueError(
                    "The length of the output channels from the backbone doesn't match the length of the anchor generator aspect ratios, "
                    f"{len(channels)} != {len(anchors)}"
                )
            head = SSDHead(channels, anchors, num_classes)
        self.head = head
        self.proposal_matcher = det_utils.SSDMatcher(iou_thresh)
        self.transform = GeneralizedRCNNTransform(
            min(size), max(size), image_mean or [0.485, 0.456, 0.406], image_std or [0.229, 0.224, 0.225], size_divisible=1, fixed_size=size, **kwargs,
        )
        self.score_thresh, self.nms_thresh, self.detections_per_img, self.topk_candidates = score_thresh, nms_thresh, detections_per_img, topk_candidates
        self.neg_to_pos_ratio = (1.0 - positive_fraction) / positive_fraction

    def _losses(self, targets, found, anchors, features):
        matched = []
        for anchor, target in zip(anchors, targets):
            if target["boxes"].numel() == 0:
                matched.append(_torch.full((anchor.size(0),), -1, dtype=_C.int64, device=anchor.device))
            else:
                matched.append(self.proposal_matcher(box_iou(target["boxes"], anchor)))
        return self.compute_loss(targets, found, anchors, matched)

    def compute_loss(self, targets, head_outputs, anchors, matched_idxs):
        logits, objects, box_losses, classes = head_outputs["cls_logits"], 0, [], []
        for target, codes, scores, anchor, matched in zip(targets, head_outputs["bbox_regression"], logits, anchors, matched_idxs):
            foreground = (matched >= 0).nonzero().squeeze(1)
            numbers = matched[foreground]
            objects += numbers.numel()
            goal = self.box_coder.encode_single(target["boxes"][numbers], anchor[foreground])
            box_losses.append(F.smooth_l1_loss(codes[foreground], goal, reduction="sum"))
            label = _torch.zeros((scores.size(0),), dtype=target["labels"].dtype, device=target["labels"].device)
            label[foreground] = target["labels"][numbers]
            classes.append(label)
        classes = _torch.stack(classes)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), classes.view(-1), reduction="none").view(classes.size())
        # Background counts where it is most mistaken.
        foreground = classes > 0
        wanted = self.neg_to_pos_ratio * foreground.sum(1, keepdim=True)
        rank = loss.detach().masked_fill(foreground, -float("inf")).sort(1, descending=True)[1].sort(1)[1]
        count = max(1, objects)
        return {"bbox_regression": _torch.stack(box_losses).sum() / count, "classification": (loss[foreground].sum() + loss[rank < wanted].sum()) / count}

    def _detections(self, found, anchors, features, image_shapes):
        result = []
        for codes, scores, anchor, shape in zip(found["bbox_regression"], found["cls_logits"].softmax(-1), anchors, image_shapes):
            boxes = clip_boxes_to_image(self.box_coder.decode_single(codes, anchor), shape)
            chosen = [], [], []
            for label in range(1, scores.shape[-1]):
                score = scores[:, label]
                keep = (score > self.score_thresh).nonzero().squeeze(1)
                value, order = score[keep].topk(min(len(keep), self.topk_candidates))
                for values, one in zip(chosen, (boxes[keep[order]], value, _torch.full_like(value, label, dtype=_C.int64))):
                    values.append(one)
            box, score, label = (_torch.cat(values) for values in chosen)
            keep = batched_nms(box, score, label, self.nms_thresh)[: self.detections_per_img]
            result.append({"boxes": box[keep], "scores": score[keep], "labels": label[keep]})
        return result


class SSDFeatureExtractorVGG(nn.Module):
    """Maps of VGG16 and of further convolutions."""

    def __init__(self, backbone, highres):
        super().__init__()
        third, fourth = [i for i, layer in enumerate(backbone) if isinstance(layer, nn.MaxPool2d)][2:4]
        backbone[third].ceil_mode = True
        self.scale_weight = nn.Parameter(_torch.ones(512) * 20)
        self.features = nn.Sequential(*backbone[:fourth])

        def block(inputs, middle, outputs, kernel=3, **options):
            return nn.Sequential(nn.Conv2d(inputs, middle, kernel_size=1), nn.ReLU(inplace=True), nn.Conv2d(middle, outputs, kernel_size=kernel, **options), nn.ReLU(inplace=True))

        extra = [
            block(1024, 256, 512, padding=1, stride=2), block(512, 128, 256, padding=1, stride=2), block(256, 128, 256), block(256, 128, 256),
            *([block(256, 128, 256, 4)] if highres else []),
        ]
        wide = nn.Sequential(
            nn.MaxPool2d(kernel_size=3, stride=1, padding=1, ceil_mode=False), nn.Conv2d(512, 1024, kernel_size=3, padding=6, dilation=6), nn.ReLU(inplace=True),
            nn.Conv2d(1024, 1024, kernel_size=1), nn.ReLU(inplace=True),
        )
        for one in (*extra, wide):
            _xavier_init(one)
        self.extra = nn.ModuleList([nn.Sequential(*backbone[fourth:-1], wide), *extra])

    def forward(self, x):
        x = self.features(x)
        found = [self.scale_weight.view(1, -1, 1, 1) * F.normalize(x)]
        for block in self.extra:
            x = block(x)
            found.append(x)
        return OrderedDict((str(at), value) for at, value in enumerate(found))


def _vgg_extractor(backbone, highres, trainable_layers):
    features = backbone.features
    stages = ([0] + [i for i, layer in enumerate(features) if isinstance(layer, nn.MaxPool2d)])[:-1]
    freeze(features, stages, trainable_layers)
    return SSDFeatureExtractorVGG(features, highres)


def _vgg(is_trained, trained, backbone, classes, pretrained_backbone, **kwargs):
    anchors = DefaultBoxGenerator(
        [[2], [2, 3], [2, 3], [2, 3], [2], [2]], scales=[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05], steps=[8, 16, 32, 64, 100, 300],
    )
    defaults = {"image_mean": [0.48235, 0.45882, 0.40784], "image_std": [1.0 / 255.0] * 3}
    return SSD(_vgg_extractor(backbone(), False, trained), anchors, (300, 300), classes, **{**defaults, **kwargs})


__all__ = detector(globals(), "ssd300_vgg16", "vgg16", (5, 4), _vgg)
