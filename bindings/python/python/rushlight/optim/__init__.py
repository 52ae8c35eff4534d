"""Optimizers and learning-rate schedules: ``torch.optim``."""

from . import lr_scheduler, optimizer  # noqa: F401
from .adafactor import Adafactor
from .adam import Adam, Adamax, AdamW, NAdam, RAdam
from .asgd import ASGD
from .lbfgs import LBFGS
from .muon import Muon
from .optimizer import Optimizer
from .rmsprop import Adadelta, Adagrad, RMSprop
from .rprop import Rprop
from .sgd import SGD
from .sparse_adam import SparseAdam

__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop",
    "SGD", "SparseAdam", "lr_scheduler", "swa_utils",
]

# Pickles and messages name PyTorch's module of a class.
for _class in (Adadelta, Adagrad, Adamax, AdamW, NAdam, RAdam):
    _class.__module__ = f"{__name__}.{_class.__name__.lower()}"
for _class in (Adafactor, Muon):
    _class.__module__ = __name__
# Libraries register every class that they find here.
del _class


def __getattr__(name):
    if name in ("adadelta", "adagrad", "adamax", "adamw", "functional", "_functional", "nadam", "radam", "swa_utils"):
        import importlib

        return importlib.import_module("." + name, __name__)
    from .._functions import _missing

    return _missing(__name__, name)
