"""Base class of image datasets."""

import os

from ...utils.data import Dataset


class VisionDataset(Dataset):
    """A dataset in a directory, with transforms for its images and labels."""

    def __init__(self, root=None, transforms=None, transform=None, target_transform=None):
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.transform, self.target_transform, self.transforms = transform, target_transform, transforms

    def _transformed(self, image, target):
        if self.transforms is not None:
            return self.transforms(image, target)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __repr__(self):
        lines = [f"Dataset {type(self).__name__}", f"    Number of datapoints: {len(self)}"]
        if self.root is not None:
            lines.append(f"    Root location: {self.root}")
        lines += ["    " + line for line in self.extra_repr().splitlines()]
        if self.transform is not None:
            lines.append("    StandardTransform")
            lines.append("Transform: " + str(self.transform))
        return "\n".join(lines)

    def extra_repr(self):
        return ""
