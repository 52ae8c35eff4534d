"""MNIST and Fashion-MNIST."""

import os

from ... import _C
from .._image import from_pixels
from .vision import VisionDataset


class MNIST(VisionDataset):
    """70,000 handwritten digits of 28 x 28, from the official files in ``root/MNIST/raw`` (packed or not)."""

    _fashion = False

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if download:
            _C._vision.mnist_download(os.fspath(self.root), self._fashion)
        try:
            images, self.targets, self.classes = _C._vision.mnist(os.fspath(self.root), self._fashion, train)
        except OSError as error:
            raise RuntimeError(f"Dataset not found. You can use download=True to download it: {error}") from None
        self.data = images.squeeze(1)

    @property
    def class_to_idx(self):
        return {name: i for i, name in enumerate(self.classes)}

    @property
    def raw_folder(self):
        return os.path.join(self.root, type(self).__name__, "raw")

    def __getitem__(self, index):
        return self._transformed(from_pixels(self.data[index].unsqueeze(0)), int(self.targets[index]))

    def __len__(self):
        return len(self.data)

    def extra_repr(self):
        return f"Split: {'Train' if self.train else 'Test'}"


class FashionMNIST(MNIST):
    """70,000 pictures of clothes of 28 x 28, from the official files in ``root/FashionMNIST/raw``."""

    _fashion = True
