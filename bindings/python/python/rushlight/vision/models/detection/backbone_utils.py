"""Backbones of detectors: classifiers without their last layers, most with a feature pyramid."""

import warnings

from .... import nn
from ...ops import FrozenBatchNorm2d
from ...ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelMaxPool
from .._api import chosen, get_model_builder, load
from .._utils import IntermediateLayerGetter


class BackboneWithFPN(nn.Module):
    """A pyramid over layers of a backbone."""

    def __init__(self, backbone, return_layers, in_channels_list, out_channels, extra_blocks=None, norm_layer=None):
        super().__init__()
        self.body = IntermediateLayerGetter(backbone, return_layers=return_layers)
        self.fpn = FeaturePyramidNetwork(in_channels_list, out_channels, extra_blocks=extra_blocks or LastLevelMaxPool(), norm_layer=norm_layer)
        self.out_channels = out_channels

    def forward(self, x):
        return self.fpn(self.body(x))


def _check(name, value, low, high):
    if not low <= value <= high:
        raise ValueError(f"{name} should be in the range [{low},{high}], got {value}")


def _resnet_fpn_extractor(backbone, trainable_layers, returned_layers=None, extra_blocks=None, norm_layer=None):
    _check("Trainable layers", trainable_layers, 0, 5)
    trained = ["layer4", "layer3", "layer2", "layer1", "conv1"][:trainable_layers] + (["bn1"] if trainable_layers == 5 else [])
    for name, parameter in backbone.named_parameters():
        if not any(name.startswith(layer) for layer in trained):
            parameter.requires_grad_(False)
    returned = returned_layers or [1, 2, 3, 4]
    if min(returned) <= 0 or max(returned) >= 5:
        raise ValueError(f"Each returned layer should be in the range [1,4]. Got {returned}")
    first = backbone.inplanes // 8
    layers = {f"layer{k}": str(at) for at, k in enumerate(returned)}
    return BackboneWithFPN(backbone, layers, [first << (k - 1) for k in returned], 256, extra_blocks, norm_layer)


def resnet_fpn_backbone(*, backbone_name, weights, norm_layer=FrozenBatchNorm2d, trainable_layers=3, returned_layers=None, extra_blocks=None):
    """A residual network with a pyramid."""
    return _resnet_fpn_extractor(_built(backbone_name, weights, norm_layer=norm_layer), trainable_layers, returned_layers, extra_blocks)


def _built(name, weights, **kwargs):
    """A classifier by name, with weights from their file."""
    builder = get_model_builder(name)
    weights = chosen(builder, weights, {})
    return load(builder(**kwargs), weights)


def _validate_trainable_layers(is_trained, trainable_backbone_layers, max_value, default_value):
    """How many layers are trained: all if nothing is pretrained."""
    if not is_trained:
        if trainable_backbone_layers is not None:
            warnings.warn(
                "Changing trainable_backbone_layers has no effect if neither pretrained nor pretrained_backbone have been set to True, falling back to "
                f"trainable_backbone_layers={max_value} so that all layers are trainable"
            )
        return max_value
    trained = default_value if trainable_backbone_layers is None else trainable_backbone_layers
    _check("Trainable backbone layers", trained, 0, max_value)
    return trained


def stages_of(features):
    """The blocks of a MobileNet at which its maps get smaller, the first and the last."""
    return [0] + [i for i, block in enumerate(features) if getattr(block, "_is_cn", False)] + [len(features) - 1]


def freeze(features, stages, trainable_layers):
    """Freezes all but the last stages. Returns how many there are."""
    _check("Trainable layers", trainable_layers, 0, len(stages))
    before = len(features) if trainable_layers == 0 else stages[len(stages) - trainable_layers]
    for block in features[:before]:
        for parameter in block.parameters():
            parameter.requires_grad_(False)


def _mobilenet_extractor(backbone, fpn, trainable_layers, returned_layers=None, extra_blocks=None, norm_layer=None):
    features = backbone.features
    stages = stages_of(features)
    count = len(stages)
    freeze(features, stages, trainable_layers)
    if not fpn:
        made = nn.Sequential(features, nn.Conv2d(features[-1].out_channels, 256, 1))
        made.out_channels = 256
        return made
    returned = returned_layers or [count - 2, count - 1]
    if min(returned) < 0 or max(returned) >= count:
        raise ValueError(f"Each returned layer should be in the range [0,{count - 1}], got {returned}")
    layers = {str(stages[k]): str(at) for at, k in enumerate(returned)}
    return BackboneWithFPN(features, layers, [features[stages[k]].out_channels for k in returned], 256, extra_blocks, norm_layer)


def mobilenet_backbone(*, backbone_name, weights, fpn, norm_layer=FrozenBatchNorm2d, trainable_layers=2, returned_layers=None, extra_blocks=None):
    """A MobileNet, with a pyramid if ``fpn``."""
    return _mobilenet_extractor(_built(backbone_name, weights, norm_layer=norm_layer), fpn, trainable_layers, returned_layers, extra_blocks)


def detector(namespace, name, backbone, layers, make):
    """Adds a function that builds a detector to a module.

    ``layers`` are the most and the default number of trained layers of the backbone. ``make`` takes whether anything is pretrained, how many layers are
    trained, a function that builds the backbone from its options, the classes and other options; it returns the model. Returns the new names.
    """
    from .._api import get_model_weights, register, weights_of

    enumeration = weights_of(name, namespace["__name__"])
    members = get_model_weights(backbone)
    first = getattr(members, "IMAGENET1K_FEATURES", None) or next(iter(members))

    def builder(*, weights=None, progress=True, num_classes=None, weights_backbone=first, trainable_backbone_layers=None, **kwargs):
        weights = chosen(namespace[name], weights, kwargs)
        weights_backbone = None if weights is not None else members.verify(weights_backbone)
        if num_classes is None:
            num_classes = 2 if name.startswith("keypoint") else 91
        is_trained = weights is not None or weights_backbone is not None
        trained = _validate_trainable_layers(is_trained, trainable_backbone_layers, *layers)
        model = make(
            is_trained, trained, lambda **options: _built(backbone, weights_backbone, **options), num_classes, pretrained_backbone=weights_backbone is not None, **kwargs,
        )
        load(model, weights)
        if weights is not None and name in ("fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn", "retinanet_resnet50_fpn"):
            from ._utils import overwrite_eps

            # These were trained without it.
            overwrite_eps(model, 0.0)
        return model

    builder.__name__ = builder.__qualname__ = name
    builder.__module__ = namespace["__name__"]
    builder.__doc__ = f"A detector with torchvision's layers of ``{name}``."
    namespace[name], namespace[enumeration.__name__] = register(builder), enumeration
    return [name, enumeration.__name__]
