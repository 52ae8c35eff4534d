"""CIFAR-10 and CIFAR-100."""

import os
import pickle

from ... import _C
from .._image import from_pixels
from .vision import VisionDataset


class _Arrays(pickle.Unpickler):
    """Unpickles lists, dictionaries and NumPy arrays only."""

    _ALLOWED = {"_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer", "encode"}

    def find_class(self, module, name):
        if module.split(".")[0] in ("numpy", "_codecs") and name in self._ALLOWED:
            return super().find_class(module.replace("numpy.core", "numpy._core") if _new_numpy() else module, name)
        raise pickle.UnpicklingError(f"CIFAR: the file wants {module}.{name}, which has no place in it")


def _new_numpy():
    import numpy

    return int(numpy.__version__.split(".")[0]) >= 2


class CIFAR10(VisionDataset):
    """60,000 colour images of 32 x 32 in 10 classes, from the version for Python or the binary version in ``root``."""

    _hundred = False
    base_folder = "cifar-10-batches-py"
    _files = {True: [f"data_batch_{i}" for i in range(1, 6)], False: ["test_batch"]}
    _meta, _names_key, _labels_key = "batches.meta", "label_names", "labels"

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        folder = os.path.join(self.root, self.base_folder)
        if os.path.isfile(os.path.join(folder, self._files[train][0])):
            self._read_python(folder)
            return
        if download:
            _C._vision.cifar_download(os.fspath(self.root), self._hundred)
        try:
            images, labels, self.classes = _C._vision.cifar(os.fspath(self.root), self._hundred, train)
        except OSError as error:
            raise RuntimeError(f"Dataset not found or corrupted. You can use download=True to download it: {error}") from None
        self.targets = labels.tolist()
        self._images = images

    def _read_python(self, folder):
        def read(name):
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    return _Arrays(file, encoding="latin1").load()
            except (OSError, EOFError, ValueError) as error:
                raise RuntimeError(f"Dataset not found or corrupted. You can use download=True to download it: {name}: {error}") from None

        parts, self.targets = [], []
        for name in self._files[self.train]:
            entry = read(name)
            parts.append(_C.as_tensor(entry["data"]).reshape((-1, 3, 32, 32)))
            self.targets += entry[self._labels_key]
        self._images = _C._torch.cat(parts, 0)
        self.classes = read(self._meta)[self._names_key]

    @property
    def data(self):
        """All images as an array ``[count, 32, 32, 3]``."""
        return self._images.permute((0, 2, 3, 1)).contiguous().numpy()

    @property
    def class_to_idx(self):
        return {name: i for i, name in enumerate(self.classes)}

    def __getitem__(self, index):
        return self._transformed(from_pixels(self._images[index]), self.targets[index])

    def __len__(self):
        return len(self._images)

    def extra_repr(self):
        return f"Split: {'Train' if self.train else 'Test'}"


class CIFAR100(CIFAR10):
    """60,000 colour images of 32 x 32 in 100 classes."""

    _hundred = True
    base_folder = "cifar-100-python"
    _files = {True: ["train"], False: ["test"]}
    _meta, _names_key, _labels_key = "meta", "fine_label_names", "fine_labels"
