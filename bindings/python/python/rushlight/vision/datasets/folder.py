"""Files in folders named after their classes."""

import os

from .._image import open_image
from .vision import VisionDataset

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def default_loader(path):
    """A file as an RGB image."""
    return open_image(path)


class DatasetFolder(VisionDataset):
    """Samples ``root/class/…/file`` read by ``loader``; classes are numbered by name."""

    def __init__(
        self, root, loader, extensions=None, transform=None, target_transform=None, is_valid_file=None, allow_empty=False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        if (extensions is None) == (is_valid_file is None):
            raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
        self.loader, self.extensions = loader, extensions
        self.classes, self.class_to_idx = self.find_classes(self.root)
        if is_valid_file is None:
            endings = (extensions,) if isinstance(extensions, str) else tuple(extensions)
            is_valid_file = lambda path: path.lower().endswith(endings)
        self.samples = []
        for name in self.classes:
            found = []
            for folder, _, files in sorted(os.walk(os.path.join(self.root, name), followlinks=True)):
                paths = (os.path.join(folder, file) for file in sorted(files))
                found += [(path, self.class_to_idx[name]) for path in paths if is_valid_file(path)]
            if not found and not allow_empty:
                raise FileNotFoundError(f"Found no valid file for the classes {name}. Supported extensions are: {extensions}")
            self.samples += found
        self.targets = [target for _, target in self.samples]

    def find_classes(self, directory):
        """The names of the folders, and their numbers."""
        classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
        if not classes:
            raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
        return classes, {name: i for i, name in enumerate(classes)}

    def __getitem__(self, index):
        path, target = self.samples[index]
        return self._transformed(self.loader(path), target)

    def __len__(self):
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Images ``root/class/…/file``."""

    def __init__(self, root, transform=None, target_transform=None, loader=default_loader, is_valid_file=None, allow_empty=False):
        super().__init__(
            root, loader, IMG_EXTENSIONS if is_valid_file is None else None, transform, target_transform, is_valid_file, allow_empty,
        )
        self.imgs = self.samples
