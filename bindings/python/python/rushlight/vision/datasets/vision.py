"""Base class of image datasets."""

import os

from ...utils.data import Dataset


class StandardTransform:
    """A transform of images and one of labels."""

    def __init__(self, transform=None, target_transform=None):
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, input, target):
        if self.transform is not None:
            input = self.transform(input)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return input, target

    def __repr__(self):
        lines = ["StandardTransform"]
        for head, one in (("Transform: ", self.transform), ("Target transform: ", self.target_transform)):
            if one is not None:
                first, *rest = repr(one).splitlines()
                lines += [head + first, *(" " * len(head) + line for line in rest)]
        return "\n".join(lines)


class VisionDataset(Dataset):
    """A dataset in a directory, with transforms for its images and labels."""

    def __init__(self, root=None, transforms=None, transform=None, target_transform=None):
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.transform, self.target_transform = transform, target_transform
        if transform is not None or target_transform is not None:
            transforms = StandardTransform(transform, target_transform)
        self.transforms = transforms

    def _transformed(self, image, target):
        return (image, target) if self.transforms is None else self.transforms(image, target)

    def __repr__(self):
        lines = [f"Dataset {type(self).__name__}", f"    Number of datapoints: {len(self)}"]
        if self.root is not None:
            lines.append(f"    Root location: {self.root}")
        lines += ["    " + line for line in self.extra_repr().splitlines()]
        if self.transforms is not None:
            lines.append(repr(self.transforms))
        return "\n".join(lines)

    def extra_repr(self):
        return ""
