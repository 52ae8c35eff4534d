"""What networks of segmentation share."""

from collections import OrderedDict

from .... import nn
from .._api import chosen, get_model_weights, load
from .._utils import IntermediateLayerGetter
from ..mobilenetv3 import mobilenet_v3_large
from ..resnet import resnet50, resnet101

#: Backbones by name: function, enumerator of weights.
BACKBONES = {"resnet50": resnet50, "resnet101": resnet101, "mobilenet_v3_large": mobilenet_v3_large}


class _SimpleSegmentationModel(nn.Module):
    """A backbone and a classifier of its last map, and one of an inner map in training; results have the images' size."""

    def __init__(self, backbone, classifier, aux_classifier=None):
        super().__init__()
        self.backbone, self.classifier, self.aux_classifier = backbone, classifier, aux_classifier

    def forward(self, x):
        size, maps, found = x.shape[-2:], self.backbone(x), OrderedDict()
        for name, head in (("out", self.classifier), ("aux", self.aux_classifier)):
            if head is not None:
                found[name] = nn.functional.interpolate(head(maps[name]), size=size, mode="bilinear", align_corners=False)
        return found


def first_weights(arch):
    """The default of ``weights_backbone``: the first weights of a backbone, as in torchvision."""
    return next(iter(get_model_weights(BACKBONES[arch])))


def _mobilenet_extractor(backbone, aux):
    """A MobileNet's features with maps of stride 16 and, if asked for, of an inner block."""
    features = backbone.features
    stages = [0] + [i for i, block in enumerate(features) if getattr(block, "_is_cn", False)] + [len(features) - 1]
    last, inner = stages[-1], stages[-4]
    layers = {str(last): "out", **({str(inner): "aux"} if aux else {})}
    return IntermediateLayerGetter(features, layers), features[last].out_channels, features[inner].out_channels


def _resnet_extractor(backbone, aux):
    layers = {"layer4": "out", **({"layer3": "aux"} if aux else {})}
    return IntermediateLayerGetter(backbone, layers), 2048, 1024


def backbone(arch, weights, aux):
    """A dilated backbone by name: the module, channels of its last and of its inner map."""
    builder = BACKBONES[arch]
    weights = chosen(builder, weights, {})
    if arch.startswith("mobilenet"):
        return _mobilenet_extractor(load(builder(dilated=True), weights), aux)
    return _resnet_extractor(load(builder(replace_stride_with_dilation=[False, True, True]), weights), aux)


def segmentation_model(namespace, name, arch, make):
    """Adds a function that builds a model from a backbone to a module. ``make`` takes what ``backbone`` gives, the classes, and ``aux``."""
    from .._api import register, weights_of

    enumeration = weights_of(name, namespace["__name__"])
    first = first_weights(arch)

    def builder(*, weights=None, progress=True, num_classes=None, aux_loss=None, weights_backbone=first, **kwargs):
        weights = chosen(namespace[name], weights, kwargs)
        if weights is not None:
            # Published files have 21 classes and, but for LR-ASPP, the auxiliary classifier.
            weights_backbone = None
            num_classes, aux_loss = num_classes or 21, True if aux_loss is None else aux_loss
        return load(make(backbone(arch, weights_backbone, bool(aux_loss)), num_classes or 21, bool(aux_loss), **kwargs), weights)

    builder.__name__ = builder.__qualname__ = name
    builder.__module__ = namespace["__name__"]
    builder.__doc__ = f"A network with torchvision's layers of ``{name}``."
    namespace[name], namespace[enumeration.__name__] = register(builder), enumeration
    return [name, enumeration.__name__]
