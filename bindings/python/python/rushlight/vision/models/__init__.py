"""Networks with torchvision's names and state dicts: ``torchvision.models``."""

import importlib as _importlib

from ._api import Weights, WeightsEnum, get_model, get_model_builder, get_model_weights, get_weight, list_models

__all__ = ["Weights", "WeightsEnum", "get_model", "get_model_builder", "get_model_weights", "get_weight", "list_models"]

#: Modules whose names this package has, too.
_FAMILIES = (
    "alexnet convnext densenet efficientnet googlenet inception mnasnet mobilenetv2 mobilenetv3 regnet resnet shufflenetv2 squeezenet swin_transformer vgg "
    "vision_transformer"
).split()

for _family in _FAMILIES:
    _module = _importlib.import_module("." + _family, __name__)
    for _name in _module.__all__:
        globals()[_name] = getattr(_module, _name)
        __all__.append(_name)

# alexnet, densenet and others are modules and functions: the functions have the names.
from . import detection, segmentation, video  # noqa: E402


def __getattr__(name):
    from ..._functions import _missing

    return _missing("torchvision.models", name)
