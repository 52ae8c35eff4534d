"""Files in folders named after their classes."""

import os

from .._image import open_image
from .vision import VisionDataset

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def has_file_allowed_extension(filename, extensions):
    """Whether a file's name ends in an extension, or in one of several."""
    return filename.lower().endswith(extensions if isinstance(extensions, str) else tuple(extensions))


def is_image_file(filename):
    """Whether a file's name is that of an image."""
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def pil_loader(path):
    """A file as an RGB image."""
    return open_image(path)


default_loader = pil_loader


def find_classes(directory):
    """The names of the folders in a folder, and their numbers."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: i for i, name in enumerate(classes)}


def make_dataset(directory, class_to_idx=None, extensions=None, is_valid_file=None, allow_empty=False):
    """The files ``directory/class/…/file`` with the numbers of their classes, by name."""
    if class_to_idx is None:
        _, class_to_idx = find_classes(directory)
    elif not class_to_idx:
        raise ValueError("'class_to_idx' must have at least one entry to collect any samples.")
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
    if is_valid_file is None:
        is_valid_file = lambda path: has_file_allowed_extension(path, extensions)
    samples = []
    for name in sorted(class_to_idx):
        found = []
        for folder, _, files in sorted(os.walk(os.path.join(directory, name), followlinks=True)):
            paths = (os.path.join(folder, file) for file in sorted(files))
            found += [(path, class_to_idx[name]) for path in paths if is_valid_file(path)]
        if not found and not allow_empty:
            raise FileNotFoundError(f"Found no valid file for the classes {name}. Supported extensions are: {extensions}")
        samples += found
    return samples


class DatasetFolder(VisionDataset):
    """Samples ``root/class/…/file`` read by ``loader``; classes are numbered by name."""

    def __init__(
        self, root, loader, extensions=None, transform=None, target_transform=None, is_valid_file=None, allow_empty=False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.loader, self.extensions = loader, extensions
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(self.root, self.class_to_idx, extensions, is_valid_file, allow_empty)
        self.targets = [target for _, target in self.samples]

    @staticmethod
    def make_dataset(directory, class_to_idx, extensions=None, is_valid_file=None, allow_empty=False):
        """The samples; classes may have their own."""
        return make_dataset(directory, class_to_idx, extensions, is_valid_file, allow_empty)

    def find_classes(self, directory):
        """The names of the folders, and their numbers."""
        return find_classes(directory)

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
