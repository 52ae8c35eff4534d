"""Public datasets from their official files: ``torchvision.datasets``."""

from .cifar import CIFAR10, CIFAR100
from .fakedata import FakeData
from .folder import DatasetFolder, ImageFolder
from .mnist import MNIST, FashionMNIST
from .vision import VisionDataset

__all__ = ["CIFAR10", "CIFAR100", "DatasetFolder", "FakeData", "FashionMNIST", "ImageFolder", "MNIST", "VisionDataset"]


def __getattr__(name):
    from ..._functions import _missing

    return _missing("torchvision.datasets", name)
