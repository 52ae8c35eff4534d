"""Random images."""

from ... import _C
from .._image import from_pixels
from .vision import VisionDataset


class FakeData(VisionDataset):
    """Random images and labels, reproducible."""

    def __init__(
        self, size=1000, image_size=(3, 224, 224), num_classes=10, transform=None, target_transform=None, random_offset=0,
    ):
        super().__init__(transform=transform, target_transform=target_transform)
        self.size, self.image_size, self.num_classes, self.random_offset = size, tuple(image_size), num_classes, random_offset

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        generator = _C.Generator()
        generator.manual_seed(index + self.random_offset)
        image = _C._torch.randint(0, 256, self.image_size, dtype=_C.uint8, generator=generator)
        target = int(_C._torch.randint(0, self.num_classes, (1,), generator=generator).item())
        return self._transformed(from_pixels(image), target)

    def __len__(self):
        return self.size
