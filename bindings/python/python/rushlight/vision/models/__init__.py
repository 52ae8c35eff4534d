"""Networks with torchvision's names and state dicts: ``torchvision.models``."""

from ._api import get_model, list_models
from .alexnet import AlexNet, AlexNet_Weights, alexnet
from .mobilenetv2 import MobileNet_V2_Weights, MobileNetV2, mobilenet_v2
from .resnet import *  # noqa: F401,F403
from .resnet import __all__ as _resnets
from .vgg import *  # noqa: F401,F403
from .vgg import __all__ as _vggs

__all__ = [
    "AlexNet", "AlexNet_Weights", "MobileNetV2", "MobileNet_V2_Weights", "alexnet", "get_model", "list_models", "mobilenet_v2", *_resnets,
    *_vggs,
]


def __getattr__(name):
    from ..._functions import _missing

    return _missing("torchvision.models", name)
