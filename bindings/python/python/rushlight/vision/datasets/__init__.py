"""Public datasets from their official files: ``torchvision.datasets``."""

from ... import _absent
from .cifar import CIFAR10, CIFAR100
from .fakedata import FakeData
from .folder import DatasetFolder, ImageFolder
from .mnist import MNIST, FashionMNIST
from .vision import VisionDataset

__all__ = ["CIFAR10", "CIFAR100", "DatasetFolder", "FakeData", "FashionMNIST", "ImageFolder", "MNIST", "VisionDataset"]


_absent.fill(
    globals(), "torchvision.datasets", "this data set has no reader; use ImageFolder or a Dataset of your own",
    "CLEVRClassification CREStereo Caltech101 Caltech256 CarlaStereo CelebA Cityscapes CocoCaptions CocoDetection Country211 DTD EMNIST ETH3DStereo EuroSAT FER2013 "
    "FGVCAircraft Flickr30k Flickr8k Flowers102 FlyingChairs FlyingThings3D Food101 GTSRB HD1K HMDB51 INaturalist ImageNet Imagenette InStereo2k KMNIST Kinetics Kitti "
    "Kitti2012Stereo Kitti2015Stereo KittiFlow LFWPairs LFWPeople LSUN LSUNClass MovingMNIST Omniglot OxfordIIITPet PCAM PhotoTour Places365 QMNIST RenderedSST2 SBDataset "
    "SBU SEMEION STL10 SUN397 SVHN SceneFlowStereo Sintel SintelStereo StanfordCars UCF101 USPS VOCDetection VOCSegmentation WIDERFace",
)


def __getattr__(name):
    from ..._functions import _missing

    return _missing("torchvision.datasets", name)
