"""Mask R-CNN: Faster R-CNN with a mask for each box."""

from collections import OrderedDict

from .... import nn
from ...ops import Conv2dNormActivation, MultiScaleRoIAlign
from .backbone_utils import _resnet_fpn_extractor, detector
from .faster_rcnn import FasterRCNN, frozen, second_version


class MaskRCNN(FasterRCNN):
    """The detector over a backbone."""

    def __init__(self, backbone, num_classes=None, *args, mask_roi_pool=None, mask_head=None, mask_predictor=None, **kwargs):
        if num_classes is not None and mask_predictor is not None:
            raise ValueError("num_classes should be None when mask_predictor is specified")
        super().__init__(backbone, num_classes, *args, **kwargs)
        self.roi_heads.mask_roi_pool = mask_roi_pool or MultiScaleRoIAlign(featmap_names=["0", "1", "2", "3"], output_size=14, sampling_ratio=2)
        self.roi_heads.mask_head = mask_head or MaskRCNNHeads(backbone.out_channels, (256, 256, 256, 256), 1)
        self.roi_heads.mask_predictor = mask_predictor or MaskRCNNPredictor(256, 256, num_classes)


class MaskRCNNHeads(nn.Sequential):
    """Convolutions."""

    _version = 2

    def __init__(self, in_channels, layers, dilation, norm_layer=None):
        convs, channels = [], in_channels
        for outputs in layers:
            convs.append(Conv2dNormActivation(channels, outputs, kernel_size=3, stride=1, padding=dilation, dilation=dilation, norm_layer=norm_layer))
            channels = outputs
        super().__init__(*convs)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if (local_metadata.get("version") or 1) < 2:
            for i in range(len(self)):
                for kind in ("weight", "bias"):
                    if f"{prefix}mask_fcn{i + 1}.{kind}" in state_dict:
                        state_dict[f"{prefix}{i}.0.{kind}"] = state_dict.pop(f"{prefix}mask_fcn{i + 1}.{kind}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class MaskRCNNPredictor(nn.Sequential):
    """A transposed convolution and one to the classes."""

    def __init__(self, in_channels, dim_reduced, num_classes):
        super().__init__(OrderedDict([
            ("conv5_mask", nn.ConvTranspose2d(in_channels, dim_reduced, 2, 2, 0)), ("relu", nn.ReLU(inplace=True)),
            ("mask_fcn_logits", nn.Conv2d(dim_reduced, num_classes, 1, 1, 0)),
        ]))
        for name, parameter in self.named_parameters():
            if "weight" in name:
                nn.init.kaiming_normal_(parameter, mode="fan_out", nonlinearity="relu")


def _resnet(is_trained, trained, backbone, classes, pretrained_backbone, **kwargs):
    return MaskRCNN(_resnet_fpn_extractor(backbone(norm_layer=frozen(is_trained)), trained), classes, **kwargs)


def _resnet_v2(is_trained, trained, backbone, classes, pretrained_backbone, **kwargs):
    body = _resnet_fpn_extractor(backbone(), trained, norm_layer=nn.BatchNorm2d)
    head = MaskRCNNHeads(body.out_channels, [256] * 4, 1, norm_layer=nn.BatchNorm2d)
    return MaskRCNN(body, classes, **{**second_version(body), "mask_head": head, **kwargs})


__all__ = [
    "MaskRCNN", *detector(globals(), "maskrcnn_resnet50_fpn", "resnet50", (5, 3), _resnet),
    *detector(globals(), "maskrcnn_resnet50_fpn_v2", "resnet50", (5, 3), _resnet_v2),
]
