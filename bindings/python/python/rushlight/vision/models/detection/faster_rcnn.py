"""Faster R-CNN."""

from .... import nn
from ...ops import Conv2dNormActivation, FrozenBatchNorm2d, MultiScaleRoIAlign
from .anchor_utils import AnchorGenerator
from .backbone_utils import _mobilenet_extractor, _resnet_fpn_extractor, detector
from .generalized_rcnn import GeneralizedRCNN
from .roi_heads import RoIHeads
from .rpn import RegionProposalNetwork, RPNHead
from .transform import GeneralizedRCNNTransform


def _default_anchorgen():
    return AnchorGenerator(((32,), (64,), (128,), (256,), (512,)), ((0.5, 1.0, 2.0),) * 5)


class FasterRCNN(GeneralizedRCNN):
    """The detector over a backbone with ``out_channels``."""

    def __init__(
        self, backbone, num_classes=None, min_size=800, max_size=1333, image_mean=None, image_std=None, rpn_anchor_generator=None, rpn_head=None,
        rpn_pre_nms_top_n_train=2000, rpn_pre_nms_top_n_test=1000, rpn_post_nms_top_n_train=2000, rpn_post_nms_top_n_test=1000, rpn_nms_thresh=0.7,
        rpn_fg_iou_thresh=0.7, rpn_bg_iou_thresh=0.3, rpn_batch_size_per_image=256, rpn_positive_fraction=0.5, rpn_score_thresh=0.0, box_roi_pool=None,
        box_head=None, box_predictor=None, box_score_thresh=0.05, box_nms_thresh=0.5, box_detections_per_img=100, box_fg_iou_thresh=0.5,
        box_bg_iou_thresh=0.5, box_batch_size_per_image=512, box_positive_fraction=0.25, bbox_reg_weights=None, **kwargs,
    ):
        if not hasattr(backbone, "out_channels"):
            raise ValueError(
                "backbone should contain an attribute out_channels specifying the number of output channels (assumed to be the same for all the levels)"
            )
        if (num_classes is None) == (box_predictor is None):
            raise ValueError(
                "num_classes should not be None when box_predictor is not specified" if num_classes is None
                else "num_classes should be None when box_predictor is specified"
            )
        channels = backbone.out_channels
        anchors = rpn_anchor_generator or _default_anchorgen()
        rpn = RegionProposalNetwork(
            anchors, rpn_head or RPNHead(channels, anchors.num_anchors_per_location()[0]), rpn_fg_iou_thresh, rpn_bg_iou_thresh, rpn_batch_size_per_image,
            rpn_positive_fraction, {"training": rpn_pre_nms_top_n_train, "testing": rpn_pre_nms_top_n_test},
            {"training": rpn_post_nms_top_n_train, "testing": rpn_post_nms_top_n_test}, rpn_nms_thresh, score_thresh=rpn_score_thresh,
        )
        box_roi_pool = box_roi_pool or MultiScaleRoIAlign(featmap_names=["0", "1", "2", "3"], output_size=7, sampling_ratio=2)
        box_head = box_head or TwoMLPHead(channels * box_roi_pool.output_size[0] ** 2, 1024)
        heads = RoIHeads(
            box_roi_pool, box_head, box_predictor or FastRCNNPredictor(1024, num_classes), box_fg_iou_thresh, box_bg_iou_thresh, box_batch_size_per_image,
            box_positive_fraction, bbox_reg_weights, box_score_thresh, box_nms_thresh, box_detections_per_img,
        )
        transform = GeneralizedRCNNTransform(min_size, max_size, image_mean or [0.485, 0.456, 0.406], image_std or [0.229, 0.224, 0.225], **kwargs)
        super().__init__(backbone, rpn, heads, transform)


class TwoMLPHead(nn.Module):
    """Two linear layers."""

    def __init__(self, in_channels, representation_size):
        super().__init__()
        self.fc6, self.fc7 = nn.Linear(in_channels, representation_size), nn.Linear(representation_size, representation_size)

    def forward(self, x):
        return self.fc7(self.fc6(x.flatten(start_dim=1)).relu()).relu()


class FastRCNNConvFCHead(nn.Sequential):
    """Convolutions, then linear layers."""

    def __init__(self, input_size, conv_layers, fc_layers, norm_layer=None):
        channels, height, width = input_size
        layers = []
        for outputs in conv_layers:
            layers.append(Conv2dNormActivation(channels, outputs, norm_layer=norm_layer))
            channels = outputs
        layers.append(nn.Flatten())
        channels *= height * width
        for outputs in fc_layers:
            layers += [nn.Linear(channels, outputs), nn.ReLU(inplace=True)]
            channels = outputs
        super().__init__(*layers)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)


class FastRCNNPredictor(nn.Module):
    """Scores of classes and codes of boxes."""

    def __init__(self, in_channels, num_classes):
        super().__init__()
        self.cls_score, self.bbox_pred = nn.Linear(in_channels, num_classes), nn.Linear(in_channels, num_classes * 4)

    def forward(self, x):
        if x.dim() == 4 and list(x.shape[2:]) != [1, 1]:
            raise AssertionError(f"x has the wrong shape, expecting the last two dimensions to be [1,1] instead of {list(x.shape[2:])}")
        x = x.flatten(start_dim=1)
        return self.cls_score(x), self.bbox_pred(x)


def second_version(backbone):
    """The heads that the second versions of the detectors have."""
    anchors = _default_anchorgen()
    return {
        "rpn_anchor_generator": anchors, "rpn_head": RPNHead(backbone.out_channels, anchors.num_anchors_per_location()[0], conv_depth=2),
        "box_head": FastRCNNConvFCHead((backbone.out_channels, 7, 7), [256] * 4, [1024], norm_layer=nn.BatchNorm2d),
    }


def frozen(is_trained):
    """The norm of a backbone: frozen if it is pretrained."""
    return FrozenBatchNorm2d if is_trained else nn.BatchNorm2d


def _resnet(is_trained, trained, backbone, classes, pretrained_backbone, **kwargs):
    return FasterRCNN(_resnet_fpn_extractor(backbone(norm_layer=frozen(is_trained)), trained), classes, **kwargs)


def _resnet_v2(is_trained, trained, backbone, classes, pretrained_backbone, **kwargs):
    body = _resnet_fpn_extractor(backbone(), trained, norm_layer=nn.BatchNorm2d)
    return FasterRCNN(body, classes, **{**second_version(body), **kwargs})


def _mobilenet(defaults):
    def make(is_trained, trained, backbone, classes, pretrained_backbone, **kwargs):
        body = _mobilenet_extractor(backbone(norm_layer=frozen(is_trained)), True, trained)
        anchors = AnchorGenerator(((32, 64, 128, 256, 512),) * 3, ((0.5, 1.0, 2.0),) * 3)
        return FasterRCNN(body, classes, rpn_anchor_generator=anchors, **{**defaults, **kwargs})

    return make


_LOW = {"min_size": 320, "max_size": 640, "rpn_pre_nms_top_n_test": 150, "rpn_post_nms_top_n_test": 150, "rpn_score_thresh": 0.05}

__all__ = [
    "FasterRCNN", *detector(globals(), "fasterrcnn_resnet50_fpn", "resnet50", (5, 3), _resnet),
    *detector(globals(), "fasterrcnn_resnet50_fpn_v2", "resnet50", (5, 3), _resnet_v2),
    *detector(globals(), "fasterrcnn_mobilenet_v3_large_fpn", "mobilenet_v3_large", (6, 3), _mobilenet({"rpn_score_thresh": 0.05})),
    *detector(globals(), "fasterrcnn_mobilenet_v3_large_320_fpn", "mobilenet_v3_large", (6, 3), _mobilenet(_LOW)),
]
