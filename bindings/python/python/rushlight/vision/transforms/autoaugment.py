"""``torchvision.transforms.autoaugment``: policies."""

from ._augment import AugMix, AutoAugment, AutoAugmentPolicy, RandAugment, TrivialAugmentWide

__all__ = ["AugMix", "AutoAugment", "AutoAugmentPolicy", "RandAugment", "TrivialAugmentWide"]
