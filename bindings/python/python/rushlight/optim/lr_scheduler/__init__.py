"""Learning-rate schedules: ``torch.optim.lr_scheduler``."""

from ._base import EPOCH_WARNING as EPOCH_DEPRECATION_WARNING  # noqa: F401
from ._base import LRScheduler
from ._composed import ChainedScheduler, SequentialLR
from ._cycle import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from ._plateau import ReduceLROnPlateau
from ._simple import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

__all__ = [
    "LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "SequentialLR", "CosineAnnealingLR",
    "ChainedScheduler", "ReduceLROnPlateau", "CyclicLR", "CosineAnnealingWarmRestarts", "OneCycleLR", "PolynomialLR", "LRScheduler",
]

#: The base class's older name.
_LRScheduler = LRScheduler

# Pickles and messages name PyTorch's module of a class.
for _name in __all__:
    globals()[_name].__module__ = __name__
